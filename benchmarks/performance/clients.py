"""Concurrent clients. Each sends its next request when it has the answer to the last."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import httpx

from tests.support.serving import REQUEST_SECONDS


class Answered(NamedTuple):
    """An answer: whether it is good, and its time on the clock of time.perf_counter."""

    good: bool
    at: float


def send_all(url: str, bodies: Iterable[bytes], clients: int) -> list[Answered]:
    """Let clients send all bodies. Returns the answers in the order of their times."""
    return asyncio.run(_send_all(url, iter(bodies), clients))


async def _send_all(url: str, bodies: Iterator[bytes], clients: int) -> list[Answered]:
    answered: list[Answered] = []
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=REQUEST_SECONDS, limits=limits) as client:

        async def one_after_the_other() -> None:
            while (body := next(bodies, None)) is not None:
                answered.append(Answered(await ask(client, body), time.perf_counter()))

        await asyncio.gather(*(one_after_the_other() for _ in range(clients)))
    return answered


async def ask(client: httpx.AsyncClient, body: bytes) -> bool:
    """Send a request. Returns whether the answer is good."""
    try:
        return good(await client.post("/rerank", content=body, headers={"content-type": "application/json"}))
    except httpx.TransportError:
        return False


def good(response: httpx.Response) -> bool:
    """Whether the response is a full answer: no error, and not degraded."""
    return response.status_code == 200 and b'"degraded":true' not in response.content


def steady_rate(answered: Sequence[Answered], began: float, clients: int) -> float:
    """Answers a second, without the first burst of one answer per client. If no client has two answers, all of them count.

    Answers come in bursts, since the service shares its batches among all waiting requests. So the rate is measured from the end of
    one burst to the end of another.
    """
    if len(answered) <= clients:
        return len(answered) / (answered[-1].at - began)
    return (len(answered) - clients) / (answered[-1].at - answered[clients - 1].at)
