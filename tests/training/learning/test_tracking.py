"""The log, rates and memory of a run, and its curves."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from training.evaluate.resources import CLEAR_REFS
from training.learn.tracking import Throughput, Tracker, dev_curves, draw_curves, in_words, peak_mb, read_log, smoothed_loss


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_log_on_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        Tracker(tmp_path).record(1, loss=0.5)


CPU = torch.device("cpu")


def test_rates_by_hand() -> None:
    throughput = Throughput()
    throughput.add(pairs=64, tokens=8192, seconds=1.5)
    throughput.add(pairs=32, tokens=4096, seconds=0.5)
    figures = throughput.figures(CPU)
    assert (throughput.steps, figures["pairs_per_second"], figures["tokens_per_second"]) == (2, 48.0, 6144)
    assert in_words(1, 1.0, figures | {"peak_memory_mb": None}) == "1 steps in 1 s: 48.0 pairs/s, 6,144 tokens/s"


@pytest.mark.skipif(not CLEAR_REFS.exists(), reason="the system does not say")
def test_the_peak_knows_memory_that_was_given_back() -> None:
    CLEAR_REFS.write_text("5", encoding="ascii")  # forgets the peak of the tests before
    before = peak_mb(CPU)
    assert before is not None
    np.ones(10_000_000)  # 80 MB
    after = peak_mb(CPU)
    assert after is not None
    assert after > before + 60


def write(run: Path, records: list[dict[str, Any]], tail: str = "") -> None:
    (run / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records) + tail, encoding="utf-8")


def test_a_resumed_run_counts_its_later_steps(tmp_path: Path) -> None:
    first = [{"step": s, "loss": 1.0} for s in (1, 2, 3)] + [{"step": 2, "dev": {"a": {"RR@10": 0.1}}}]
    again = [{"step": s, "loss": 2.0} for s in (2, 3, 4)] + [{"step": 2, "dev": {"a": {"RR@10": 0.2}}}]
    write(tmp_path, first + again)
    records = read_log(tmp_path)
    assert [(r["step"], r["loss"]) for r in records if "loss" in r] == [(1, 1.0), (2, 2.0), (3, 2.0), (4, 2.0)]
    assert [r["dev"] for r in records if "dev" in r] == [{"a": {"RR@10": 0.2}}]


@pytest.mark.parametrize(("steps", "measured"), [(0, 2), (1, 0), (60, 2)])
def test_curves_of_any_length(tmp_path: Path, steps: int, measured: int) -> None:
    records: list[dict[str, Any]] = [{"step": s, "loss": 1 / s} for s in range(1, steps + 1)]
    records += [{"step": s, "dev": {"a": {"RR@10": 0.5}, "b": {"RR@10": 0.6}}} for s in range(measured)]
    write(tmp_path, records)
    assert draw_curves(tmp_path).read_bytes().startswith(b"\x89PNG")


def test_the_smoothed_loss_by_hand() -> None:
    """The mean of the 50 steps up to each; of all where there are fewer."""
    records = [{"step": step, "loss": float(step)} for step in range(1, 53)] + [{"step": 52, "dev": {}}]
    steps, values = smoothed_loss(records)
    assert steps.tolist() == [50, 51, 52]
    assert values == pytest.approx([25.5, 26.5, 27.5])
    assert [array.tolist() for array in smoothed_loss(records[:3])] == [[3], pytest.approx([2.0])]
    assert [array.tolist() for array in smoothed_loss([])] == [[], []]


def test_dev_curves_by_hand() -> None:
    records = [
        {"step": 1, "loss": 0.5},
        {"step": 1, "dev": {"a": {"RR@10": 0.1, "AP": 0.2}}},
        {"step": 2, "dev": {"a": {"RR@10": 0.3}, "b": {"RR@10": 0.4}}},
    ]
    assert dev_curves(records) == {"a": [(1, 0.1), (2, 0.3)], "b": [(2, 0.4)]}
    assert dev_curves(records, "AP") == {"a": [(1, 0.2)]}
