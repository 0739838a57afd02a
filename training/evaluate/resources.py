"""Measures the peak memory of some work in this process, resident and on the GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

MB = 1e6  # bytes
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # of proc(5): sets the peak resident set size back to the current one


@dataclass
class Memory:
    """Peak memory in MB (10^6 bytes); None where it cannot be measured (resident memory: on Linux only).

    Attributes:
        rss_mb: the largest resident set of the whole process, with Python, libraries and collection.
        cuda_mb: PyTorch's largest allocation on the current GPU, weights included.
    """

    rss_mb: float | None = None
    cuda_mb: float | None = None

    @property
    def peak_mb(self) -> float | None:
        """The peak for tables: the GPU's if there is one, else the resident set's."""
        return self.rss_mb if self.cuda_mb is None else self.cuda_mb


@contextmanager
def peak_memory() -> Iterator[Memory]:
    """Measure while the `with` block runs; the values are set when it ends.

    The kernel's own high-water mark is reset at the start; where that is not allowed, resident memory is not measured. Blocks
    cannot be nested: the inner one resets the outer one's mark.
    """
    memory = Memory()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    measured = _reset_kernel_peak()
    try:
        yield memory
    finally:
        memory.rss_mb = resident_mb("VmHWM") if measured else None
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
