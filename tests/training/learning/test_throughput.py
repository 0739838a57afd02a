"""Rates by hand, and the peak of memory against an allocation."""

import numpy as np
import pytest
import torch

from training.learning.throughput import Throughput, duration, in_words, peak_mb

CPU = torch.device("cpu")


def test_rates_by_hand() -> None:
    throughput = Throughput()
    throughput.add(pairs=64, tokens=8192, seconds=1.5)
    throughput.add(pairs=32, tokens=4096, seconds=0.5)
    figures = throughput.figures(CPU)
    assert (throughput.steps, figures["pairs_per_second"], figures["tokens_per_second"]) == (2, 48.0, 6144)


def test_in_words() -> None:
    figures = {"pairs_per_second": 1234.5, "tokens_per_second": 98765, "peak_memory_mb": 2048}
    assert in_words(1000, 61.4, figures) == "1,000 steps in 61 s: 1,234.5 pairs/s, 98,765 tokens/s, peak memory 2,048 MB"
    assert in_words(1, 1.0, figures | {"peak_memory_mb": None}).endswith("98,765 tokens/s")


@pytest.mark.skipif(peak_mb(CPU) is None, reason="the system does not say")
def test_the_peak_knows_memory_that_was_given_back() -> None:
    before = peak_mb(CPU)
    assert before is not None
    np.ones(int(before * 1e6 / 8) + 10_000_000)  # more than all that was ever resident, and 80 MB
    after = peak_mb(CPU)
    assert after is not None
    assert after > before + 60


def test_durations_for_people() -> None:
    said = [duration(seconds) for seconds in (8040, 3600, 125, 20, 90_000)]
    assert said == ["2 h 14 min", "1 h 0 min", "2 min", "less than a minute", "25 h 0 min"]
