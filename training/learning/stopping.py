"""Early stopping: when training no longer gets better on dev, and which model was the best."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

MEASURE = "RR@10"


def dev_quality(dev: Mapping[str, Mapping[str, float]]) -> float:
    """What decides: the mean over the collections of RR@10 on dev."""
    return fmean(values[MEASURE] for values in dev.values())


@dataclass
class EarlyStopping:
    """Watches the quality on dev.

    Attributes:
        patience: measurements in a row without improvement until training stops; None: it never does, and no best is kept.
        best: the best quality so far.
        stale: measurements since then.
    """

    patience: int | None = None
    best: float = -math.inf
    stale: int = 0

    def improves(self, quality: float) -> bool:
        """Take note of a measurement; whether it is the best so far. An equal one is no improvement."""
        better = quality > self.best
        self.best, self.stale = (quality, 0) if better else (self.best, self.stale + 1)
        return better

    @property
    def exhausted(self) -> bool:
        """Whether to stop."""
        return self.patience is not None and self.stale >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": self.best, "stale": self.stale}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """From a checkpoint."""
        self.best, self.stale = float(state_dict["best"]), int(state_dict["stale"])
