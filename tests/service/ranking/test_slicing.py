import asyncio
import threading
import time
from itertools import count

import pytest

from service.pace import Pace
from service.ranking.slicing import LARGE_CHARS, AbandonedError, Threads, Watch
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, wait_for


@pytest.mark.parametrize("in_time", [True, False])
def test_work_that_nobody_waits_for_ends_at_its_next_pause(in_time: bool) -> None:
    """Its client has gone, or its time is up: one long document does not keep a thread until it is done."""
    machine, begun, ended = Leaping(), threading.Event(), threading.Event()
    threads = Threads(1, machine)

    def work(numbers: range, watch: Watch) -> list[int]:
        begun.set()
        try:
            while True:
                time.sleep(0.001)
                watch(1)
        except AbandonedError:
            ended.set()
            raise

    async def ask() -> None:
        until = machine.now() + FAR if in_time else None
        task = asyncio.create_task(threads.in_slices([1], work, until, Pace()))
        await asyncio.to_thread(begun.wait, PATIENCE)
        if in_time:
            machine.leap()
            assert await task == [None]
            return
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    wait_for(ended.is_set)
    threads.close()


def test_work_that_waited_for_a_thread_in_vain_does_not_begin() -> None:
    abandoned = threading.Event()
    abandoned.set()
    with pytest.raises(AbandonedError):
        Watch(1, Pace(), abandoned).begin()


def test_the_pace_of_a_long_slice_is_known_before_it_ends() -> None:
    pace, short, clock = Pace(), Pace(), count(step=0.05)
    works = (2 * LARGE_CHARS, pace), (10_000, short)
    watch, other = (Watch(chars, of, threading.Event(), lambda: next(clock)) for chars, of in works)
    for one in (watch, other):
        one.begin()
        one(10_000)
    assert pace.seconds == pytest.approx(0.05 / 10_000)
    assert short.seconds == 0
    other.end()
    assert short.seconds > 0
