"""Reports a run while it trains: RUN/log.jsonl, speed, memory and learning curves."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.evaluate.resources import MB, resident_mb

WINDOW = 50


def read_log(run: Path) -> list[dict[str, Any]]:
    """The log's records, by step. Of a step that a resumed run repeated the later record counts; a truncated line is left out."""
    latest: dict[tuple[int, bool], dict[str, Any]] = {}
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        latest[record["step"], "dev" in record] = record
    return [latest[key] for key in sorted(latest)]


def smoothed_loss(records: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps, and the mean loss of the 50 steps up to each (of all, if there are fewer): two arrays of one length."""
    losses = [(r["step"], r["loss"]) for r in records if "loss" in r]
    steps, values = np.asarray([step for step, _ in losses], np.int64), np.asarray([loss for _, loss in losses], np.float64)
    window = min(WINDOW, len(losses))
    return (steps[window - 1 :], np.convolve(values, np.ones(window) / window, "valid")) if losses else (steps, values)


def dev_curves(records: Sequence[Mapping[str, Any]], measure: str = "RR@10") -> dict[str, list[tuple[int, float]]]:
    """Pairs of step and dev value, by collection; empty for a measure that is not in the log."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for collection, measures in record.get("dev", {}).items():
            if measure in measures:
                curves.setdefault(collection, []).append((record["step"], measures[measure]))
    return curves


def draw_curves(run: Path) -> Path:
    """Draw RUN/curves.png: the loss (mean of 50 steps) and RR@10 on dev by collection."""
    records = read_log(run)
    curves = dev_curves(records)
    figure = Figure(figsize=(10, 4))
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.14, top=0.96, wspace=0.2)
    left.plot(*smoothed_loss(records))
    left.set(xlabel="step", ylabel=f"loss, mean of {WINDOW} steps")
    for name, points in curves.items():
        right.plot(*zip(*points, strict=True), marker="o", label=name)
    right.set(xlabel="step", ylabel="RR@10 on the dev sample, model alone", ylim=(0, 1))
    if curves:
        right.legend(loc="lower right")  # "best" searches, and warns when it takes long
    path = run / "curves.png"
    figure.savefig(path, dpi=120)
    return path


class Tracker:
    """Writes a run's records.

    Args:
        run: the run directory.
    """

    def __init__(self, run: Path) -> None:
        self.path = run / "log.jsonl"
        if not (self.path.exists() and self.path.stat().st_size):
            return
        with self.path.open("rb+") as log:  # end a line that a kill or a full disk cut short
            log.seek(-1, os.SEEK_END)
            if log.read(1) != b"\n":
                log.write(b"\n")

    def record(self, step: int, **values: Any) -> None:
        """Write a line of the log."""
        with self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": step, "time": round(time.time(), 1), **values}) + "\n")


@dataclass
class Throughput:
    """Sums over the steps of this process; a resumed run counts from its resumption.

    Attributes:
        steps: optimizer steps.
        pairs: (query, document) pairs that were trained on.
        tokens: tokens of these pairs that went through the model.
        seconds: wall time of the steps, with waiting for their data, without measuring and saving.
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
    """The peak memory so far in MB: PyTorch's on a GPU, else the process's resident set; None if the system does not report it."""
    return torch.cuda.max_memory_allocated(device) / MB if device.type == "cuda" else resident_mb("VmHWM")


def in_words(steps: int, seconds: float, figures: dict[str, Any]) -> str:
    """One line for the end of a run."""
    memory = figures["peak_memory_mb"]
    rates = f"{figures['pairs_per_second']:,} pairs/s, {figures['tokens_per_second']:,} tokens/s"
    return f"{steps:,} steps in {seconds:,.0f} s: {rates}" + (f", peak memory {memory:,} MB" if memory is not None else "")
