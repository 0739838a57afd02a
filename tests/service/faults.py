"""A real session with a gate and faults put in, shared by the tests of the engine and of the endpoint."""

import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from keyblock.runtime.session import Session

Ints = NDArray[np.int64]
PATIENCE = 30.0  # seconds until a test gives up; nothing here takes a tenth of it


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


class Faulty:
    """The real session behind a gate that tests close, with faults that they put in."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.open = threading.Event()
        self.open.set()
        self.fault: BaseException | None = None
        self.only_with: int | None = None  # a token id: only batches that hold it are hit
        self.shapes: list[tuple[int, ...]] = []

    def score(self, ids: Ints, types: Ints, mask: Ints) -> NDArray[np.float32]:
        assert self.open.wait(PATIENCE)
        self.shapes.append(ids.shape)
        if self.fault is not None and (self.only_with is None or self.only_with in ids):
            raise self.fault
        return self.session.score(ids, types, mask)
