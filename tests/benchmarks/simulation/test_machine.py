"""The simulated machine keeps the contract of the real one (tests/service/test_machine.py), in no time."""

import threading
from concurrent.futures import Future
from random import Random
from typing import Any

import pytest

from benchmarks.simulation.loop import StuckError
from benchmarks.simulation.machine import SimulatedMachine


@pytest.fixture(params=[True, False], ids=["interleaves", "at once"])
def machine(request: pytest.FixtureRequest) -> SimulatedMachine:
    return SimulatedMachine(Random(1), interleaves=request.param)


def run(machine: SimulatedMachine, coroutine: Any) -> Any:
    """What it returns, once all that it began is over."""
    with machine.loop.running():
        task = machine.loop.create_task(coroutine)
        while machine.loop.step():
            pass
    return task.result()


def test_threads_take_work_in_turns_and_it_takes_what_it_spends(machine: SimulatedMachine) -> None:
    """Two threads, three works of a second: the third begins when the first ends."""
    ended = []

    async def one(number: int) -> None:
        await machine.run(pool, machine.spend, 1.0)
        ended.append((number, machine.now()))

    pool = machine.pool(2, "name")
    run(machine, machine.together([one(number) for number in range(3)]))
    assert ended == [(0, 1.0), (1, 1.0), (2, 2.0)]


def test_what_others_do_in_the_time_of_a_work_comes_between_its_steps() -> None:
    machine, seen = SimulatedMachine(Random(1)), []

    def work(name: str, seconds: float) -> None:
        for _ in range(2):
            machine.spend(seconds)
            seen.append((name, machine.now()))

    async def both() -> None:
        pool = machine.pool(2, "name")
        await machine.together([machine.run(pool, work, "slow", 3.0), machine.run(pool, work, "quick", 2.0)])

    run(machine, both())
    assert seen == [("quick", 2.0), ("slow", 3.0), ("quick", 4.0), ("slow", 6.0)]


def test_what_a_work_raises_is_raised_where_it_is_awaited(machine: SimulatedMachine) -> None:
    async def fails() -> float:
        with pytest.raises(ZeroDivisionError):
            await machine.run(machine.pool(1, "name"), lambda: machine.spend(1.0) or 1 / 0)  # type: ignore[func-returns-value]
        return machine.now()

    assert run(machine, fails()) == 1.0


def test_work_that_nobody_waits_for_does_not_begin(machine: SimulatedMachine) -> None:
    done: list[str] = []

    async def leaves() -> None:
        pool = machine.pool(1, "name")
        pool.submit(machine.spend, 10.0)
        with pytest.raises(TimeoutError):
            async with machine.timeout(1.0):
                await machine.run(pool, done.append, "in vain")

    run(machine, leaves())
    assert not done


def test_a_pool_that_is_shut_down_ends_what_is_begun_and_takes_no_more(machine: SimulatedMachine) -> None:
    async def ends() -> tuple[float, bool]:
        pool = machine.pool(1, "name")
        begun, waiting = pool.submit(machine.spend, 3.0), pool.submit(machine.spend, 3.0)
        pool.shutdown(wait=True, cancel_futures=True)
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(print)
        assert begun.done()
        return machine.now(), waiting.cancelled()

    assert run(machine, ends()) == (3.0, True)


def test_a_thread_waits_with_a_condition_and_is_joined(machine: SimulatedMachine) -> None:
    told, changed = [], machine.condition()

    def work() -> None:
        with changed:
            while not told:
                changed.wait()
        machine.spend(2.0)

    async def tells() -> list[tuple[bool, float]]:
        thread = machine.thread(work, "name")
        thread.start()
        thread.join(1.0)
        seen = [(thread.is_alive(), machine.now())]
        with changed:
            told.append(True)
            changed.notify()
        thread.join()
        return [*seen, (thread.is_alive(), machine.now())]

    assert run(machine, tells()) == [(True, 1.0), (False, 3.0)]


def test_a_lock_that_a_sleeping_thread_holds_is_noticed() -> None:
    machine = SimulatedMachine(Random(1))
    changed = machine.condition()

    def sleeps() -> None:
        with changed:
            machine.spend(1.0)

    def takes() -> None:
        with changed:
            pass

    for work in (sleeps, takes):
        machine.thread(work, "name").start()
    with pytest.raises(StuckError, match="which sleeps"):
        all(iter(machine.loop.step, False))
    machine.end()


def test_a_future_is_awaited_until_it_is_done_or_time_is_up(machine: SimulatedMachine) -> None:
    async def waits() -> list[tuple[bool, float]]:
        future: Future[int] = Future()
        machine.loop.call_later(3.0, future.set_result, 1)
        return [(await machine.awaited(future).wait_until(until), machine.now()) for until in (1.0, None)]

    assert run(machine, waits()) == [(False, 1.0), (True, 3.0)]


def test_the_wall_clock_jumps_and_the_other_does_not(machine: SimulatedMachine) -> None:
    before = machine.wall()
    machine.wall_is += 100.0
    assert (machine.wall() - before, machine.now()) == (100.0, 0.0)


def test_the_end_ends_each_thread(machine: SimulatedMachine) -> None:
    ended, changed = threading.Event(), machine.condition()

    def work() -> None:
        try:
            with changed:
                changed.wait()
        finally:
            ended.set()

    with machine.loop.running():
        machine.thread(work, "name").start()
        all(iter(machine.loop.step, False))
        machine.end()
    assert ended.is_set()
