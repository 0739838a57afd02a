"""Learns on dev what is added to a model's logit, and how much of a document is read."""
