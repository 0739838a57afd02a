"""Measures the peak memory of some work in this process, resident and on the GPU."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

MB = 1e6  # bytes
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # of proc(5): sets the peak resident set size back to the current one
SAMPLE_SECONDS = 0.005


@dataclass
class Memory:
    """Peak memory in MB (10^6 bytes); None where it cannot be measured (resident memory: on Linux only).

    Attributes:
        rss_mb: the largest resident set of the whole process, with Python, libraries and collection.
        growth_mb: its growth since the start; memory that Python had freed before and reuses does not count.
        cuda_mb: PyTorch's largest allocation on the current GPU, weights included.
    """

    rss_mb: float | None = None
    growth_mb: float | None = None
    cuda_mb: float | None = None

    @property
    def peak_mb(self) -> float | None:
        """The peak for tables: the GPU's if there is one, else the resident set's."""
        return self.rss_mb if self.cuda_mb is None else self.cuda_mb


@contextmanager
def peak_memory() -> Iterator[Memory]:
    """Measure while the `with` block runs; the values are set when it ends.

    The kernel's own high-water mark is reset at the start. If that is not allowed, a thread samples the resident set every
    5 ms and may miss shorter peaks. Blocks cannot be nested: the inner one resets the outer one's mark.
    """
    memory, before = Memory(), resident_mb("VmRSS")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    peak = (_kernel_peak if _reset_kernel_peak() else _sampled_peak()) if before is not None else None
    try:
        yield memory
    finally:
        memory.rss_mb = peak() if peak else None
        if before is not None and memory.rss_mb is not None:
            memory.growth_mb = max(0.0, memory.rss_mb - before)
        if torch.cuda.is_available():
            memory.cuda_mb = torch.cuda.max_memory_allocated() / MB


def resident_mb(field: str) -> float | None:
    """VmRSS (the resident set now) or VmHWM (its peak) of this process in MB; None if the system does not report it."""
    try:
        lines = STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(f"{field}:")), None)


def _reset_kernel_peak() -> bool:
    try:
        CLEAR_REFS.write_text(RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def _kernel_peak() -> float | None:
    return resident_mb("VmHWM")


def _sampled_peak() -> Callable[[], float | None]:
    """Start to sample. The returned function stops the sampling and gives the largest sample."""
    samples, done = [resident_mb("VmRSS")], threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            samples[:] = [_larger(samples[0], resident_mb("VmRSS"))]

    thread = threading.Thread(target=watch, name="peak-memory", daemon=True)
    thread.start()

    def stop() -> float | None:
        done.set()
        thread.join()
        return _larger(samples[0], resident_mb("VmRSS"))

    return stop


def _larger(one: float | None, other: float | None) -> float | None:
    return max(filter(None, (one, other)), default=None)
