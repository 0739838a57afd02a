"""The model's thread and its work."""
