"""Where PyTorch computes."""

import torch


def fastest_device() -> torch.device:
    """The GPU where PyTorch sees one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
