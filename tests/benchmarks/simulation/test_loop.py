"""The event loop whose clock is a number: asyncio's own code runs on it, in order and in no time."""

import asyncio
from typing import Any

import pytest

from benchmarks.simulation.loop import Loop, StuckError


def run(loop: Loop, coroutine: Any) -> Any:
    """What it returns, once all that it began is over."""
    with loop.running():
        task = loop.create_task(coroutine)
        while loop.step():
            pass
    return task.result()


def test_time_passes_from_event_to_event() -> None:
    loop, seen = Loop(), []

    async def one(name: str, seconds: float) -> None:
        for _ in range(2):
            await asyncio.sleep(seconds)
            seen.append((name, loop.time()))

    async def both() -> None:
        await asyncio.gather(one("slow", 3.0), one("quick", 2.0))

    run(loop, both())
    assert seen == [("quick", 2.0), ("slow", 3.0), ("quick", 4.0), ("slow", 6.0)]


def test_a_body_that_waits_beyond_its_time_ends_there() -> None:
    loop = Loop()

    async def waits() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.sleep(60.0)
        return loop.time()

    assert run(loop, waits()) == 5.0


def test_the_members_of_a_group_are_cancelled_in_their_order() -> None:
    """A set of tasks has the order of their numbers, and not of where they lie in memory."""
    cancelled = []

    async def waits(number: int) -> None:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def fails() -> None:
        await asyncio.sleep(1.0)
        raise ValueError("no")

    async def group() -> None:
        async with asyncio.TaskGroup() as members:
            for number in range(5):
                members.create_task(waits(number))
            members.create_task(fails())

    with pytest.raises(ExceptionGroup):
        run(Loop(), group())
    assert cancelled == [0, 1, 2, 3, 4]


def test_what_is_blocked_lets_only_threads_go_on() -> None:
    loop, seen = Loop(), []
    loop.at(1.0, seen.append, "the loop's")
    loop.at(2.0, seen.append, "a thread's", of_thread=True)
    loop.block(lambda: bool(seen))
    assert (seen, loop.time()) == (["a thread's"], 2.0)
    all(iter(loop.step, False))
    assert seen == ["a thread's", "the loop's"]
    with pytest.raises(StuckError, match="none is ever going on"):
        loop.block(lambda: False)


def test_events_that_get_nowhere_are_noticed() -> None:
    loop = Loop()

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(StuckError, match="time does not pass"):
        all(iter(loop.step, False))


def test_what_nobody_asks_for_is_raised() -> None:
    loop = Loop()
    loop.call_soon(loop.call_exception_handler, {"message": "lost", "exception": KeyError("lost")})
    with pytest.raises(KeyError):
        loop.step()
