"""How fast a run trains and how much memory it takes."""

from dataclasses import dataclass
from typing import Any

import torch

from training.evaluation.resources import MB, resident_mb


@dataclass
class Throughput:
    """Sums over the steps of this process's life: a resumed run counts from its resumption.

    Attributes:
        steps: optimizer steps.
        pairs: (query, document) pairs that were scored and learned from.
        tokens: tokens that went through the model for them.
        seconds: wall time of the steps, waiting for their data included; measuring and saving not.
    """

    steps: int = 0
    pairs: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, pairs: int, tokens: int, seconds: float) -> None:
        """Count one step."""
        self.steps, self.pairs, self.tokens = self.steps + 1, self.pairs + pairs, self.tokens + tokens
        self.seconds += seconds

    def figures(self, device: torch.device) -> dict[str, Any]:
        """Rates per second and the peak memory in MB (10^6 bytes), rounded for people."""
        seconds = max(self.seconds, 1e-9)
        peak = peak_mb(device)
        return {
            "pairs_per_second": round(self.pairs / seconds, 1),
            "tokens_per_second": round(self.tokens / seconds),
            "peak_memory_mb": None if peak is None else round(peak),
        }


def peak_mb(device: torch.device) -> float | None:
    """The most memory until now: PyTorch's on a GPU, else the process's resident set; None where the system does not say."""
    return torch.cuda.max_memory_allocated(device) / MB if device.type == "cuda" else resident_mb("VmHWM")


def duration(seconds: float) -> str:
    """A stretch of time for people.

    >>> duration(8040), duration(125), duration(20)
    ('2 h 14 min', '2 min', 'less than a minute')
    """
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min" if seconds >= 60 else "less than a minute"


def in_words(steps: int, seconds: float, figures: dict[str, Any]) -> str:
    """One line for the end of a run."""
    memory = figures["peak_memory_mb"]
    rates = f"{figures['pairs_per_second']:,} pairs/s, {figures['tokens_per_second']:,} tokens/s"
    return f"{steps:,} steps in {seconds:,.0f} s: {rates}" + (f", peak memory {memory:,} MB" if memory is not None else "")
