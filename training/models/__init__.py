"""Rankers as PyTorch modules, where they start from, and their checkpoints."""
