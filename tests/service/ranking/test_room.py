import asyncio

import pytest

from service.errors import RequestError
from service.ranking.room import Room
from service.telemetry.metrics import Metrics


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


def test_a_small_one_that_did_not_fit_at_once_passes_as_soon_as_it_does() -> None:
    async def ask() -> list[int]:
        where, log, first, second, rest = room(), list[int](), asyncio.Event(), asyncio.Event(), asyncio.Event()
        rest.set()
        tasks = [asyncio.create_task(hold(where, 75, first, log)), asyncio.create_task(hold(where, 24, second, log))]
        tasks += [asyncio.create_task(hold(where, needed, rest, log)) for needed in (70, 12)]
        await asyncio.sleep(0.02)
        assert log == [75, 24]
        second.set()
        await asyncio.sleep(0.02)
        assert log == [75, 24, 12], "70 does not fit yet"
        first.set()
        await asyncio.gather(*tasks)
        return log

    assert asyncio.run(ask()) == [75, 24, 12, 70]


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


def test_who_waits_too_long_is_refused_and_takes_nothing() -> None:
    async def ask() -> None:
        where, log, first = room(), list[int](), asyncio.Event()
        held = asyncio.create_task(hold(where, 70, first, log))
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as raised:
            await hold(where, 70, first, log, patient=False)
        assert (raised.value.status, raised.value.retry_after) == (429, 1)
        first.set()
        await held
        await asyncio.wait_for(hold(where, 75, first, log), 1)

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
