"""Where PyTorch computes, and the arithmetic that a recipe's `precision` means there."""

import torch

from keyblock.runtime.cpus import bf16_feature


def fastest_device() -> torch.device:
    """The GPU where PyTorch sees one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def in_bf16(precision: str, device: torch.device) -> bool:
    """Whether matrix products are computed in bf16; `auto` means bf16 on GPUs and on CPUs that multiply it in hardware."""
    return precision == "bf16" or (precision == "auto" and (device.type != "cpu" or bf16_feature() is not None))


def in_words(precision: str, device: torch.device) -> str:
    """One line about the arithmetic, and its reason."""
    bf16, feature = in_bf16(precision, device), bf16_feature()
    if device.type != "cpu":
        return f"{'bf16' if bf16 else 'fp32'} on {device.type}"
    if feature is not None:
        return f"bf16 on the CPU, by its {feature}" if bf16 else f"fp32 on the CPU, though its {feature} computes bf16 faster"
    return "bf16 on a CPU that only emulates it; fp32 is several times as fast" if bf16 else "fp32 on the CPU, which has no bf16"
