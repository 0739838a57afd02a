"""The simulated machine does what Python's threads and pools do, in no time."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from benchmarks.simulation.loop import StuckError
from benchmarks.simulation.machine import SimulatedCondition, SimulatedMachine


@pytest.fixture(params=[True, False], ids=["interleaves", "at once"])
def machine(request: pytest.FixtureRequest) -> SimulatedMachine:
    return SimulatedMachine(Random(1), interleaves=request.param)


def run(machine: SimulatedMachine, coroutine: Any) -> Any:
    """What it returns, once all that it began is over."""
    with machine.standing_in():
        task = machine.loop.create_task(coroutine)
        while machine.loop.step():
            pass
    return task.result()


async def together(*works: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


def test_threads_take_work_in_turns_and_it_takes_what_it_spends(machine: SimulatedMachine) -> None:
    """Two threads, three works of a second: the third begins when the first ends."""
    ended = []

    async def one(number: int) -> None:
        await machine.loop.run_in_executor(pool, machine.spend, 1.0)
        ended.append((number, machine.now()))

    pool = machine.pool(2, "name")
    run(machine, together(*map(one, range(3))))
    assert ended == [(0, 1.0), (1, 1.0), (2, 2.0)]


def test_what_others_do_in_the_time_of_a_work_comes_between_its_steps() -> None:
    machine, seen = SimulatedMachine(Random(1)), []

    def work(name: str, seconds: float) -> None:
        for _ in range(2):
            machine.spend(seconds)
            seen.append((name, machine.now()))

    async def both() -> None:
        pool = machine.pool(2, "name")
        await asyncio.gather(*(machine.loop.run_in_executor(pool, work, *about) for about in (("slow", 3.0), ("quick", 2.0))))

    run(machine, both())
    assert seen == [("quick", 2.0), ("slow", 3.0), ("quick", 4.0), ("slow", 6.0)]


def test_a_lock_that_a_sleeping_thread_holds_is_noticed() -> None:
    machine = SimulatedMachine(Random(1))
    changed = SimulatedCondition(machine)

    def sleeps() -> None:
        with changed:
            machine.spend(1.0)

    def takes() -> None:
        with changed:
            pass

    for work in (sleeps, takes):
        machine.thread(work).start()
    with pytest.raises(StuckError, match="which sleeps"):
        all(iter(machine.loop.step, False))
    machine.end()


def test_it_stands_in_for_pythons_clock_and_threads_in_the_modules_of_the_service_alone(machine: SimulatedMachine) -> None:
    from service.queue import worker
    from service.ranking import preparation

    with machine.standing_in():
        machine.loop.at(5.0, bool)
        machine.loop.step()
        assert worker.time.perf_counter() == 5.0  # type: ignore[attr-defined]
        assert not isinstance(worker.threading.Thread(target=bool), threading.Thread)  # type: ignore[attr-defined]
        assert not isinstance(preparation.ThreadPoolExecutor(1, "name"), ThreadPoolExecutor)  # type: ignore[attr-defined]
        assert time.perf_counter() != 5.0
    assert worker.time is time  # type: ignore[attr-defined]


def test_the_end_ends_each_thread(machine: SimulatedMachine) -> None:
    ended, changed = threading.Event(), SimulatedCondition(machine)

    def work() -> None:
        try:
            with changed:
                changed.wait()
        finally:
            ended.set()

    with machine.loop.running():
        machine.thread(work).start()
        all(iter(machine.loop.step, False))
        machine.end()
    assert ended.is_set()
