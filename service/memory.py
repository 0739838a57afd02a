"""Returns memory to the system that the process has freed, and its C library keeps."""

import asyncio
import ctypes
import os
import time
from pathlib import Path

PAUSE = 5.0  # seconds between two looks at the process's memory
GROWTH = 32 << 20  # bytes more than after the last time: returning less is not worth the page faults that follow
KEPT = 128 << 20  # bytes beside full caches that small requests may leave, however many they are: docs/run/size.md
QUIET = 0.1  # share of a processor: a process that used less has been quiet
_STATM = Path("/proc/self/statm")  # Linux; sizes in pages, the second is what is in memory


def give_back() -> None:
    """Return freed memory to the system, if the C library can, as glibc does."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident() -> int:
    """Bytes of the process that are in memory; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


async def keep_giving_back(pause: float = PAUSE, growth: int = GROWTH) -> None:
    """Return freed memory whenever the process has grown, and once it is quiet after work, until cancelled.

    What the process held when it last returned memory may be free by the time it is quiet. A thread does it: it takes milliseconds
    a gigabyte.

    Args:
        pause: seconds between two looks.
        growth: bytes by which the process must have grown since the last time.
    """
    kept, worked = resident(), False
    while True:
        spent = time.process_time()
        await asyncio.sleep(pause)
        quiet = time.process_time() - spent < QUIET * pause
        if resident() >= kept + growth or (quiet and worked):
            await asyncio.to_thread(give_back)
            kept = resident()
            worked = worked and not quiet
        worked = worked or not quiet
        kept = min(kept, resident())
