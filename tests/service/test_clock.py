"""Deadlines of a leaping clock: far away until it leaps, and then over, with a task and with a future of another thread."""

import asyncio
from concurrent.futures import Future

import pytest

from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE


def test_what_waits_in_time_is_ended_by_a_leap_and_by_nothing_before() -> None:
    async def wait() -> None:
        machine = Leaping()
        async with machine.timeout(machine.now() + FAR):
            await asyncio.sleep(0.01)
            machine.leap()
            await asyncio.sleep(PATIENCE)
            pytest.fail("it still waits")

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def test_a_body_that_ends_before_is_left_alone() -> None:
    async def ends() -> bool:
        machine = Leaping()
        async with machine.timeout(machine.now() + FAR):
            await asyncio.sleep(0)
        machine.leap()
        async with machine.timeout(None):
            await asyncio.sleep(0.01)
        return True

    assert asyncio.run(ends())


def test_a_future_is_awaited_until_it_is_done_or_the_clock_leaps() -> None:
    async def ask() -> tuple[bool, bool, bool]:
        machine, future = Leaping(), Future[int]()
        awaited = machine.awaited(future)
        waiting = asyncio.create_task(awaited.wait_until(machine.now() + FAR))
        await asyncio.sleep(0.01)
        before = waiting.done()
        machine.leap()
        late = await waiting
        future.set_result(1)
        return before, late, await awaited.wait_until(machine.now() + FAR)

    assert asyncio.run(ask()) == (False, False, True)
