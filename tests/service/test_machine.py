"""The real clock, threads and waiting, on asyncio; a simulated one keeps the same contract (tests/benchmarks/simulation)."""

import asyncio
import gc
import threading
import time
from concurrent.futures import Future

import pytest

from service.machine import ASYNCIO
from tests.service.faults import PATIENCE


def test_work_is_done_in_a_thread_of_the_pool() -> None:
    pool = ASYNCIO.pool(1, "name")
    assert asyncio.run(ASYNCIO.run(pool, lambda ending: threading.current_thread().name + ending, "!")) == "name_0!"
    pool.shutdown()


def test_a_body_that_waits_beyond_its_time_ends_there() -> None:
    async def wait() -> None:
        async with ASYNCIO.timeout(ASYNCIO.now() + 0.01):
            await asyncio.sleep(PATIENCE)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def test_where_one_fails_the_others_are_cancelled() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ExceptionGroup):
        asyncio.run(ASYNCIO.together([waits(), fails()]))
    assert ended == ["cancelled"]


def test_a_future_is_awaited_until_it_is_done_or_time_is_up() -> None:
    async def ask() -> tuple[bool, bool, bool]:
        future: Future[int] = Future()
        awaited = ASYNCIO.awaited(future)
        early = await awaited.wait_until(ASYNCIO.now() + 0.01)
        past = await awaited.wait_until(ASYNCIO.now() - 1)
        threading.Timer(0.01, future.set_result, [1]).start()
        return early, past, await awaited.wait_until(None)

    assert asyncio.run(ask()) == (False, False, True)


def test_what_failed_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The future says why; asyncio's own beside it goes unread."""

    async def ask() -> bool:
        future: Future[int] = Future()
        future.set_exception(ValueError("no"))
        return await ASYNCIO.awaited(future).wait_until(None)

    assert asyncio.run(ask())
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_clocks_are_seconds() -> None:
    before = ASYNCIO.now()
    assert 0 <= time.perf_counter() - before < PATIENCE
    assert abs(time.time() - ASYNCIO.wall()) < PATIENCE
