"""Learning curves from a run's log."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

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
