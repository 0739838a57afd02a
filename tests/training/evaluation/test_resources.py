"""Peak memory, on memory that is really taken and given back."""

import mmap
import sys
from pathlib import Path

import pytest
import torch

from training.evaluate import resources
from training.evaluate.resources import Memory, peak_memory, resident_mb

linux = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
TAKEN = 60  # MB


def take_and_give_back() -> None:
    """Pages of our own: they go back to the system at once, as a small piece of the heap need not."""
    with mmap.mmap(-1, TAKEN * 1_000_000) as pages:
        for start in range(0, len(pages), mmap.PAGESIZE):
            pages[start] = 1


@linux
def test_memory_given_back_inside_still_counts() -> None:
    with peak_memory() as memory:
        take_and_give_back()
    assert memory.growth_mb is not None
    assert TAKEN - 5 < memory.growth_mb < TAKEN + 40
    now = resident_mb("VmRSS")
    assert now is not None
    assert memory.rss_mb is not None
    assert memory.rss_mb > now + TAKEN / 2


@linux
def test_memory_given_back_before_does_not_count() -> None:
    take_and_give_back()
    with peak_memory() as memory:
        pass
    assert memory.growth_mb is not None
    assert memory.growth_mb < TAKEN / 2


@linux
def test_memory_is_unknown_where_the_mark_cannot_be_reset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "CLEAR_REFS", tmp_path / "nowhere" / "clear_refs")
    with pytest.raises(KeyError), peak_memory() as memory:
        raise KeyError
    assert (memory.rss_mb, memory.growth_mb) == (None, None)


def test_memory_is_unknown_if_the_system_does_not_report_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "STATUS", tmp_path / "nowhere")
    with peak_memory() as memory:
        pass
    assert (memory.rss_mb, memory.growth_mb) == (None, None)


def test_a_table_says_the_gpu_s_where_there_is_one() -> None:
    assert Memory(rss_mb=800.0, cuda_mb=300.0).peak_mb == 300.0
    assert Memory(rss_mb=800.0).peak_mb == 800.0
    assert Memory().peak_mb is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_memory_of_the_gpu() -> None:
    with peak_memory() as memory:
        torch.zeros(10_000_000, device="cuda").sum().item()
    assert memory.cuda_mb is not None
    assert memory.cuda_mb >= 40
