"""Learning curves from a run's log."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

WINDOW = 50


def read_log(run: Path) -> list[dict[str, Any]]:
    """The log's records; where a resumed run repeated a step, the later record counts. A line that a kill cut short is left out."""
    latest: dict[tuple[int, bool], dict[str, Any]] = {}
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        latest[record["step"], "dev" in record] = record
    return [latest[key] for key in sorted(latest)]


def draw_curves(run: Path) -> Path:
    """Draw RUN/curves.png: the loss (mean of 50 steps) and RR@10 on dev by collection."""
    records = read_log(run)
    losses = [(r["step"], r["loss"]) for r in records if "loss" in r]
    measured = [(r["step"], r["dev"]) for r in records if "dev" in r]
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    if losses:
        steps, values = map(np.asarray, zip(*losses, strict=True))
        window = min(WINDOW, len(values))
        left.plot(steps[window - 1 :], np.convolve(values, np.ones(window) / window, "valid"))
    left.set(xlabel="step", ylabel=f"loss, mean of {WINDOW} steps")
    for name in measured[0][1] if measured else ():
        right.plot([step for step, _ in measured], [dev[name]["RR@10"] for _, dev in measured], marker="o", label=name)
    right.set(xlabel="step", ylabel="RR@10 on the dev sample, model alone", ylim=(0, 1))
    if measured:
        right.legend(loc="lower right")  # "best" searches, and warns when it takes long
    path = run / "curves.png"
    figure.savefig(path, dpi=120)
    return path
