"""The model's thread and what it runs."""
