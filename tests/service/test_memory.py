"""Memory that is freed, most of it in pieces of a kilobyte, which the C library keeps."""

import asyncio
import ctypes
import http.client
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from service.memory import KEPT, give_back, keep_giving_back, resident
from tests.support.serving import Service
from training.evaluate.resources import MB

PIECES, SIZE = 100_000, 1000
REQUESTS, CLIENTS = 750, 4
CACHE_BYTES = 1 << 20  # of prepared documents, and the same of scores
PATIENCE = 20.0  # seconds until what is freed is given back
SCRIPTS = (
    "abcdefghij",
    "äöüßéñçøåæ",
    "абвгдежзик",
    "ابتثجحخدذر",
    "कखगघचछजझटठ",
    "กขคงจฉชซญฎ",
    "漢字東京河川橋長水日",
    "한국어문장강다리물",
)
ODD = "\u200d", "\U0001f600\u200d", "e\u0301\u0302", "\u0378", "a", "\n", ".!", "\ud800", "\u202e\ufeff", "0123456789"


async def _until_given_back() -> None:
    before, until = resident(), time.monotonic() + PATIENCE
    while resident() > before - PIECES * SIZE / 2 and time.monotonic() < until:
        await asyncio.sleep(0.02)


async def _when_it_has_grown() -> None:
    """The service's own task, which looks at the process's memory all the time; it has just grown."""
    task = asyncio.create_task(keep_giving_back(pause=0.01, growth=-PIECES * SIZE))
    await _until_given_back()
    task.cancel()


async def _quiet_after_work() -> None:
    """The same task, in a process that does not grow, but is quiet after some work."""
    task = asyncio.create_task(keep_giving_back(pause=0.1, growth=1 << 40))
    await asyncio.sleep(0)
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    await _until_given_back()
    task.cancel()


def _in_its_time() -> None:
    asyncio.run(_when_it_has_grown())


def _in_quiet() -> None:
    asyncio.run(_quiet_after_work())


def _resident_around(returning: Callable[[], None]) -> tuple[float, float]:
    """Megabytes that are resident before and after, of a process that has just freed all of its pieces but one."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes, library.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    pieces = [library.malloc(SIZE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, SIZE)
    for piece in pieces[:-1]:  # the last one is at the top, and holds what is below
        library.free(piece)
    before = resident() / MB
    returning()
    library.free(pieces[-1])
    return before, resident() / MB


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells what is resident as Linux does")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps nothing that it could be asked for")
@pytest.mark.parametrize("returning", [give_back, _in_its_time, _in_quiet])
def test_what_was_freed_is_given_back(returning: Callable[[], None]) -> None:
    """In a process of its own: where others have left holes, the pieces lie on pages with what is still in use."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        before, after = fresh.submit(_resident_around, returning).result()
    assert after < before - PIECES * SIZE / 2 / MB


def _text(draw: random.Random) -> str:
    """A text that no other request has: mostly words of a script, sometimes something odd without a space."""
    if draw.random() < 0.01:
        return f"{draw.random()} " + draw.choice(ODD) * draw.randrange(20_000)
    letters = draw.choice(SCRIPTS)
    return ". ".join("".join(draw.choices(letters + "  ", k=80)) for _ in range(draw.randrange(5)))


def _ask(port: int, numbers: range) -> None:
    """Requests, each of its own kind; one in ten is given up without reading the answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        for number in numbers:
            draw = random.Random(number)
            wish = draw.choice([{}, {"prune": True}, {"return_documents": True}, {"deadline_ms": draw.randrange(50)}])
            body = {"query": _text(draw)[:50].strip() or "river", "documents": [_text(draw), _text(draw)], **wish}
            connection.request("POST", "/rerank", json.dumps(body))
            if number % 10:
                answer = connection.getresponse()
                assert (answer.status, answer.read()[:1]) == (200, b"{")
            else:
                connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells what is resident as Linux does")
def test_many_requests_leave_no_more_than_is_stated(bundle_path: Path, tmp_path: Path) -> None:
    limits = {"cache_bytes": CACHE_BYTES, "score_cache_bytes": CACHE_BYTES, "bundle": bundle_path}
    with Service(2, tmp_path / "log", **limits) as service:
        before = service.resident()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda first: _ask(service.port, range(first, REQUESTS, CLIENTS)), range(CLIENTS)))
        assert service.metric("keyblock_cache_bytes") > 0.9 * CACHE_BYTES
        most, until = before + 2 * CACHE_BYTES + KEPT, time.monotonic() + PATIENCE
        while (left := service.resident()) > most and time.monotonic() < until:
            time.sleep(0.1)
        assert left <= most
