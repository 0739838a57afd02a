"""The simulated machine keeps the contract of the real one (tests/service/test_machine.py), in no time."""

from asyncio import CancelledError
from concurrent.futures import Future
from typing import Any

import pytest

from benchmarks.simulation.machine import Process, SimulatedMachine, StuckError


def run(machine: SimulatedMachine, coroutine: Any) -> Process:
    """To its end, with all that it begins."""
    process = machine.begin(coroutine)
    while machine.step():
        pass
    assert process.ended
    return process


def test_time_passes_from_event_to_event() -> None:
    machine, seen = SimulatedMachine(), []

    async def one(name: str, seconds: float) -> None:
        for _ in range(2):
            await machine.sleep(seconds)
            seen.append((name, machine.now()))

    machine.begin(one("slow", 3.0))
    run(machine, one("quick", 2.0))
    assert seen == [("quick", 2.0), ("slow", 3.0), ("quick", 4.0), ("slow", 6.0)]


def test_threads_take_work_in_turns_and_it_takes_what_it_spends() -> None:
    """Two threads, three works of a second: the third begins when the first ends."""
    machine, ended = SimulatedMachine(), []
    pool = machine.pool(2, "name")

    async def one(number: int) -> None:
        await machine.run(pool, machine.spend, 1.0)
        ended.append((number, machine.now()))

    run(machine, machine.together([one(number) for number in range(3)]))
    assert ended == [(0, 1.0), (1, 1.0), (2, 2.0)]


def test_a_body_that_waits_beyond_its_time_ends_there() -> None:
    machine, ended = SimulatedMachine(), []

    async def waits() -> None:
        try:
            async with machine.timeout(5.0):
                await machine.sleep(60.0)
        except TimeoutError:
            ended.append(machine.now())
        async with machine.timeout(70.0):
            await machine.sleep(1.0)
        await machine.sleep(100.0)  # that time is over and does not matter any more

    assert run(machine, waits()).error is None
    assert ended == [5.0]


def test_a_client_that_goes_is_no_timeout() -> None:
    machine = SimulatedMachine()

    async def waits() -> None:
        async with machine.timeout(5.0):
            await machine.sleep(60.0)

    process = machine.begin(waits())
    machine.at(2.0, process.cancel)
    while machine.step():
        pass
    assert isinstance(process.error, CancelledError)


def test_where_one_fails_the_others_are_cancelled() -> None:
    machine, ended = SimulatedMachine(), []

    async def waits() -> None:
        try:
            await machine.sleep(60.0)
        except CancelledError:
            ended.append(machine.now())
            raise

    async def fails() -> None:
        await machine.sleep(1.0)
        raise ValueError("no")

    assert isinstance(run(machine, machine.together([waits(), fails()])).error, ExceptionGroup)
    assert ended == [1.0]


def test_work_that_nobody_waits_for_does_not_begin() -> None:
    machine, done = SimulatedMachine(), []
    pool = machine.pool(1, "name")
    machine.begin(machine.run(pool, machine.spend, 10.0))
    process = machine.begin(machine.run(pool, done.append, "in vain"))
    machine.at(1.0, process.cancel)
    while machine.step():
        pass
    assert not done


def test_a_future_is_awaited_until_it_is_done_or_time_is_up() -> None:
    machine, future, seen = SimulatedMachine(), Future[int](), []

    async def waits() -> None:
        awaited = machine.awaited(future)
        seen.append((await awaited.by(1.0), machine.now()))
        seen.append((await awaited.by(None), machine.now()))

    machine.at(3.0, future.set_result, 1)
    run(machine, waits())
    assert seen == [(False, 1.0), (True, 3.0)]


def test_the_wall_clock_jumps_and_the_other_does_not() -> None:
    machine = SimulatedMachine()
    before = machine.wall()
    machine.wall_is += 100.0
    assert (machine.wall() - before, machine.now()) == (100.0, 0.0)


def test_events_that_get_nowhere_are_noticed() -> None:
    machine = SimulatedMachine()

    def again() -> None:
        machine.soon(again)

    again()
    with pytest.raises(StuckError):
        all(iter(machine.step, False))
