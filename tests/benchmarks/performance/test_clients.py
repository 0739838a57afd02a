"""Many clients, on a server that counts how many it has at once."""

import asyncio
import json
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.performance.clients import Answered, good, send_all, steady_rate
from tests.support.ports import free_port


@pytest.fixture
def most() -> list[int]:
    """The greatest number of requests that were there at once, as its only member."""
    return [0]


@pytest.fixture
def url(most: list[int], request: pytest.FixtureRequest) -> Iterator[str]:
    """A service that answers once as many requests are there as the test has clients."""
    there, all_there = [0], asyncio.Event()

    async def rerank(request: Request) -> JSONResponse:
        there[0] += 1
        most[0] = max(most[0], there[0])
        if there[0] == clients:
            all_there.set()
        await all_there.wait()
        await asyncio.sleep(0.02)  # in which one client too many would be seen
        there[0] -= 1
        return JSONResponse({"meta": {"degraded": json.loads(await request.body()) == "degrade"}})

    clients: int = request.param
    port = free_port()
    app = Starlette(routes=[Route("/rerank", rerank, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("url", [4], indirect=True)
def test_clients_share_the_requests(url: str, most: list[int]) -> None:
    answered = send_all(url, (json.dumps(n).encode() for n in range(12)), 4)
    assert len(answered) == 12
    assert all(answer.good for answer in answered)
    assert most == [4]


@pytest.mark.parametrize("url", [1], indirect=True)
def test_a_degraded_answer_is_not_good(url: str) -> None:
    answered = send_all(url, [b'"degrade"', b'"not"'], 1)
    assert [answer.good for answer in answered] == [False, True]


def test_an_error_is_no_answer() -> None:
    assert not good(httpx.Response(500, content=b"{}"))
    assert [answer.good for answer in send_all(f"http://127.0.0.1:{free_port()}", [b"1"], 1)] == [False]


def test_the_rate_between_two_bursts() -> None:
    """Two clients; the first burst ends at 3, when the service has started; then two answers in two seconds."""
    answered = [Answered(True, at) for at in (2.9, 3.0, 4.9, 5.0)]
    assert steady_rate(answered, began=0.0, clients=2) == pytest.approx(1.0)
    assert steady_rate(answered[:2], began=0.0, clients=2) == pytest.approx(2 / 3)
