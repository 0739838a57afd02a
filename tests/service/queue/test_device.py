import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from service.queue.device import Device, PendingBatch
from tests.service.faults import PATIENCE, wait_for


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device(threading.Condition())
    yield device
    device.close()


def failing(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_works_are_done_one_after_the_other_on_a_thread_of_its_own(device: Device) -> None:
    gate, done, threads = threading.Event(), list[int](), set[str]()

    def work(number: int) -> int:
        assert gate.wait(PATIENCE)
        done.append(number)
        threads.add(threading.current_thread().name)
        return 2 * number

    batches = [PendingBatch(lambda number=number: work(number)) for number in range(5)]  # type: ignore[misc]
    for batch in batches:
        device.begin(batch)
    assert not any(batch.finished for batch in batches)
    gate.set()
    device.wait(batches[-1])
    assert done == list(range(5))
    assert [batch.take() for batch in batches] == [0, 2, 4, 6, 8]
    assert threads == {"device"}


def test_what_a_work_raises_is_its_outcome_and_the_next_is_done(device: Device) -> None:
    error = ValueError("no")
    batches: list[PendingBatch[None]] = [PendingBatch(failing(error)), PendingBatch(lambda: None)]
    for batch in batches:
        device.begin(batch)
    device.wait(batches[1])
    assert not any(batch.fatal for batch in batches)
    assert [batch.take() for batch in batches] == [error, None]
    assert not device.dead
    assert device.do(lambda: 3) == 3
    with pytest.raises(ValueError, match="no"):
        device.do(failing(error))


def test_what_ends_a_thread_ends_its_own(device: Device) -> None:
    assert not device.dead, "it was not begun"
    batch = PendingBatch(failing(SystemExit()))
    device.begin(batch)
    device.wait(batch)
    assert batch.fatal
    wait_for(lambda: device.dead)


def test_closed_it_ends_after_the_work_in_hand() -> None:
    device, begun, gate = Device(threading.Condition()), threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait(PATIENCE)

    batches = [PendingBatch(work), PendingBatch(work)]
    for batch in batches:
        device.begin(batch)
    assert begun.wait(PATIENCE)
    device.close()
    gate.set()
    wait_for(lambda: device.dead)
    assert [batch.finished for batch in batches] == [True, False]


def test_nothing_is_kept_of_what_a_work_was_done_with(device: Device) -> None:
    """Nor by the traceback of its error, once that is taken and forgotten; the garbage collector is not waited for."""

    def work(fails: bool, array: NDArray[np.float64]) -> None:
        kept.append(weakref.ref(array))
        if fails:
            raise ValueError

    kept: list[weakref.ref[NDArray[np.float64]]] = []
    batches = [PendingBatch(partial(work, fails, np.zeros(3))) for fails in (False, True)]
    gc.disable()
    try:
        for batch in batches:
            device.begin(batch)
        device.wait(batches[1])
        assert kept[0]() is None, "the work is over"
        assert isinstance(batches[1].take(), ValueError)
        wait_for(lambda: kept[1]() is None)
    finally:
        gc.enable()
