import asyncio
import threading
import time
from itertools import count

import pytest

from keyblock.ranking.pruning import Steps
from service.errors import RequestError
from service.pace import Pace
from service.ranking.preparation import LARGE_CHARS, AbandonedError, Texts, Threads, Watch
from service.ranking.room import Room
from service.telemetry.metrics import Metrics
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, wait_for


@pytest.mark.parametrize("in_time", [True, False])
def test_work_that_nobody_waits_for_ends_at_its_next_pause(clock: Leaping, in_time: bool) -> None:
    """Its client has gone, or its time is up: one long document does not keep a thread until it is done."""
    begun, ended = threading.Event(), threading.Event()
    threads = Threads(1)

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
        until = time.perf_counter() + FAR if in_time else None
        task = asyncio.create_task(threads.in_slices([1], work, until, Pace()))
        await asyncio.to_thread(begun.wait, PATIENCE)
        if in_time:
            clock.leap()
            assert await task == [None]
            return
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    wait_for(ended.is_set)
    threads.close()


def test_the_pace_of_a_long_slice_is_known_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, short, clock = Pace(), Pace(), count(step=0.05)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    works = (2 * LARGE_CHARS, pace), (10_000, short)
    watch, other = (Watch(chars, of, threading.Event()) for chars, of in works)
    for one in (watch, other):
        one.begin()
        one(10_000)
    assert pace.seconds == pytest.approx(0.05 / 10_000)
    assert short.seconds == 0
    other.end()
    assert short.seconds > 0


def test_work_in_steps_takes_turns_and_stops_when_nobody_waits_for_it() -> None:
    """One thread: a small answer is completed beside an endless one, which ends with its request."""
    threads, steps_done = Threads(1), count()
    seen = 0

    def endless() -> Steps[None]:
        nonlocal seen
        while True:
            time.sleep(0.001)
            seen = next(steps_done)
            yield

    def small() -> Steps[str]:
        yield
        return "done"

    async def ask() -> None:
        long = asyncio.create_task(threads.in_turns(endless()))
        while not seen:
            await asyncio.sleep(0.001)
        async with asyncio.timeout(PATIENCE):
            assert (await threads.in_turns(small()))[0] == "done"
        assert not long.done()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long

    asyncio.run(ask())
    threads.close()  # waits for the turn in hand
    at_end = seen
    time.sleep(0.05)
    assert seen == at_end


def test_slices_without_memory_wait_for_others_and_are_refused_in_the_end() -> None:
    """Room for one slice: the second request is refused before it begins, and the third, once it has begun, is not."""
    room = Room(100, patience=0.2, metrics=Metrics())
    threads, leave, running, most = Threads(4, room=room), threading.Event(), 0, 0
    lock = threading.Lock()

    def work(numbers: range, _watch: Watch) -> list[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        leave.wait(PATIENCE)
        with lock:
            running -= 1
        return list(numbers)

    def slowly(numbers: range, watch: Watch) -> list[int]:
        time.sleep(0.3)  # longer than the patience
        return work(numbers, watch)

    costs, texts = [2 * LARGE_CHARS] * 2, Texts([LARGE_CHARS] * 2, [70] * 2)

    async def ask() -> None:
        first = asyncio.create_task(threads.in_slices(costs, work, None, Pace(), texts=texts))
        while not running:
            await asyncio.sleep(0.001)
        with pytest.raises(RequestError, match="no memory to prepare its texts beside others") as raised:
            await threads.in_slices(costs, work, None, Pace(), texts=texts)
        assert (raised.value.status, raised.value.retry_after) == (429, 1)
        third = asyncio.create_task(threads.in_slices(costs, slowly, None, Pace(), texts=texts))
        await asyncio.sleep(0.01)
        leave.set()
        assert await first == await third == [0, 1]

    asyncio.run(ask())
    assert most == 1
    threads.close()


def room(n_bytes: int = 100, patience: float = 0.05) -> Room:
    return Room(n_bytes, patience, Metrics())


async def hold(where: Room, n_bytes: int, until: asyncio.Event, log: list[int], *, patient: bool = True) -> None:
    async with where.taken(n_bytes, patient=patient):
        log.append(n_bytes)
        await until.wait()


def test_two_that_do_not_fit_together_come_one_after_the_other_and_a_small_one_passes() -> None:
    async def ask() -> list[int]:
        where, log, first, rest = room(), list[int](), asyncio.Event(), asyncio.Event()
        rest.set()
        tasks = [asyncio.create_task(hold(where, 1_000_000, first, log))]
        tasks += [asyncio.create_task(hold(where, needed, rest, log)) for needed in (60, 20, 10)]
        await asyncio.sleep(0.02)
        assert log == [1_000_000, 10], "20 would fit beside the first, but 60 came before it"
        first.set()
        await asyncio.gather(*tasks)
        return log

    assert asyncio.run(ask()) == [1_000_000, 10, 60, 20]


def test_when_the_first_that_waits_gives_up_the_next_has_its_turn() -> None:
    async def ask() -> None:
        where, log, first = room(), list[int](), asyncio.Event()
        held = asyncio.create_task(hold(where, 50, first, log))
        await asyncio.sleep(0)
        impatient = asyncio.create_task(hold(where, 75, first, log, patient=False))
        await asyncio.sleep(0)
        behind = asyncio.create_task(hold(where, 50, first, log))
        with pytest.raises(RequestError):
            await impatient
        await asyncio.sleep(0)
        assert log == [50, 50]
        first.set()
        await asyncio.gather(held, behind)

    asyncio.run(ask())


def test_a_cancelled_wait_leaves_room_for_others() -> None:
    async def ask() -> None:
        where, log, first = room(), list[int](), asyncio.Event()
        held = asyncio.create_task(hold(where, 70, first, log))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(hold(where, 70, first, log)) for _ in range(2)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        first.set()
        waiting[1].cancel()  # its turn may have come already
        await asyncio.gather(held, *waiting, return_exceptions=True)
        await asyncio.wait_for(hold(where, 75, first, log), 1)
        assert log[-1] == 75

    asyncio.run(ask())
