"""The model in another process than preparation: the messages and both ends; other modules carry the messages."""
