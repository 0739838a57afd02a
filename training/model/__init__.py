"""Rankers as PyTorch modules, their initial weights, and their checkpoints."""
