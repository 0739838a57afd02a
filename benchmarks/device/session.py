"""A simulated device that takes as long as a GPU would. Its results mean nothing."""

import ctypes
import os
import time
from typing import Self

import numpy as np
from numpy.typing import NDArray

RATE, LAUNCH = "DEVICE_RATE", "DEVICE_LAUNCH"  # variables of the environment
LENGTH = 128  # tokens of the sequences that the device's rate counts
Ints = NDArray[np.int64]
_PR_SET_TIMERSLACK, _NANOSECOND = 29, 1
_LIBC = ctypes.CDLL(None)


class SimulatedDevice:
    """Replaces a `keyblock.runtime.session.Session`. It sleeps, and uses neither a core nor the interpreter lock meanwhile.

    Args:
        rate: sequences of 128 tokens a second in very large batches; padding takes as long as tokens.
        launch: additional seconds of every batch.

    Attributes:
        busy: seconds of computation so far.
        waited: seconds that callers have waited; more than `busy`, since threads wake up late.
        batches: batches so far.
    """

    def __init__(self, rate: float, launch: float) -> None:
        self._rate, self._launch = rate, launch
        self.busy = self.waited = 0.0
        self.batches = 0

    @classmethod
    def from_environment(cls) -> Self:
        """The device that the environment variables describe."""
        return cls(float(os.environ[RATE]), float(os.environ[LAUNCH]))

    def seconds(self, rows: int, length: int) -> float:
        """Seconds that a batch takes."""
        return self._launch + rows * length / (LENGTH * self._rate)

    def score(self, ids: Ints, types: Ints, mask: Ints) -> NDArray[np.float32]:
        """Logits of shape (batch,) for three arrays of shape (batch, length): small numbers that differ."""
        started, seconds = time.perf_counter(), self.seconds(*ids.shape)
        _LIBC.prctl(_PR_SET_TIMERSLACK, _NANOSECOND, 0, 0, 0)  # for this thread: otherwise Linux may end its sleep 50 us late
        logits: NDArray[np.float32] = (ids[:, 1:].sum(axis=1) % 1000).astype(np.float32) / 100 - 5
        time.sleep(max(started + seconds - time.perf_counter(), 0.0))
        self.busy += seconds
        self.waited += time.perf_counter() - started
        self.batches += 1
        return logits
