"""The simulated device of the models' graphs. A batch takes time, is slow, fails, runs out of memory, hangs, or ends its thread."""

from random import Random

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import logit
from keyblock.runtime.batching import BatchTooLargeError

LAUNCH_SECONDS = 2e-4
HUNG_SECONDS = 90.0
WARM_UP = 1  # the document number of a warm-up's sequences: all their tokens have this value


class DyingError(BaseException):
    """Ends the thread that runs a graph. It is not an error of the graph."""


class Device:
    """The state of the device.

    Args:
        machine: provides the clock.
        random: random numbers of the faults.
        token_seconds: seconds per token.

    Attributes:
        slower: factor by which batches take longer.
        failing: probability that a batch fails.
        memory: most tokens of a batch.
        warm_ups_fail: whether new models cannot run.
        dies, hangs: whether the next batch ends the thread, or hangs.
        hangs_since: time at which the current batch began, if it hangs.
        dead: whether the device's thread has ended.
        poison: documents that make every batch fail.
        batches: batches so far.
    """

    def __init__(self, machine: SimulatedMachine, random: Random, token_seconds: float) -> None:
        self.machine = machine
        self.slower, self.failing, self.memory, self.warm_ups_fail = 1.0, 0.0, 1 << 30, False
        self.dies = self.hangs = self.dead = False
        self.hangs_since: float | None = None
        self.poison: set[int] = set()
        self.batches = 0
        self._random, self._token_seconds = random, token_seconds
        self._process = 0

    def start(self) -> None:
        """Reset the device for a new process. Unfinished batches of the last process have no effect any more."""
        self.dead, self.hangs_since = False, None
        self._process += 1

    def run(self, ids: NDArray[np.int64]) -> None:
        """Spend the time of a batch. Raises an exception if the batch fails or ends the thread."""
        warm_up, process = int(ids[0, 1]) == WARM_UP, self._process
        self.batches += not warm_up
        hangs, self.hangs = self.hangs and not warm_up, self.hangs and warm_up
        normal = (LAUNCH_SECONDS + ids.size * self._token_seconds) * self.slower * (0.8 + 0.4 * self._random.random())
        self.hangs_since = self.machine.now() if hangs else None
        self.machine.spend(HUNG_SECONDS if hangs else normal)
        if process != self._process:
            return
        self.hangs_since = None
        if warm_up:
            if self.warm_ups_fail:
                raise RuntimeError("this graph does not run here")
        elif self.dies:
            self.dies, self.dead = False, True
            raise DyingError
        elif (self.failing and self._random.random() < self.failing) or (
            self.poison and not self.poison.isdisjoint(ids[:, 1].tolist())
        ):
            raise RuntimeError("the graph fails")
        if ids.size > self.memory and (warm_up or len(ids) > 1):
            raise BatchTooLargeError("no memory")


class Graph:
    """A model's graph, which returns the model's logits.

    Args:
        device: the device that runs the graph.
        salt: the model's number.
        states: whether the graph also returns a state of one number with each logit.
    """

    def __init__(self, device: Device, salt: int, *, states: bool) -> None:
        self._device, self._salt, self._states = device, salt, states

    def score(self, ids: NDArray[np.int64], _types: NDArray[np.int64], _mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `keyblock.runtime.batching.Scorer`."""
        self._device.run(ids)
        logits: NDArray[np.float32] = logit(self._salt, ids[:, 0], ids[:, 1], ids[:, 2]).astype(np.float32)
        return np.repeat(logits[:, None], 2, 1) if self._states else logits
