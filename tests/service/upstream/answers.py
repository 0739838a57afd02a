"""What upstreams answer: those that score, and those that misbehave, without a network."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

Behaviour = Callable[[dict[str, Any]], Awaitable[httpx.Response]]
"""Answers a request of this body."""


def respond(content: object) -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(json.dumps(content).encode()))


def says(status: int, content: bytes = b"", **headers: str) -> Behaviour:
    """Answers this, whatever is asked."""

    async def answer(_asked: dict[str, Any]) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Response(status, headers=named, stream=httpx.ByteStream(content))

    return answer


def overlap(query: str, passage: str) -> float:
    """The share of the query's words that a passage has: what a model of these upstreams says."""
    words = set(query.lower().split())
    return len(words & set(passage.lower().replace(".", "").split())) / len(words)


async def scores(asked: dict[str, Any]) -> httpx.Response:
    """An answer like Jina's."""
    await asyncio.sleep(0.001)
    found = [{"index": n, "relevance_score": overlap(asked["query"], text)} for n, text in enumerate(asked["documents"])]
    return respond({"results": sorted(found, key=lambda one: -one["relevance_score"])})


async def tei(asked: dict[str, Any]) -> httpx.Response:
    """An answer like text-embeddings-inference's, with logits; it knows no documents."""
    if "texts" not in asked:
        return await says(422, b'{"error": "missing field `texts`"}')(asked)
    return respond([{"index": n, "score": 10 * overlap(asked["query"], text) - 5} for n, text in enumerate(asked["texts"])])


async def hangs(_asked: dict[str, Any]) -> httpx.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def dies(_asked: dict[str, Any]) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"results": ['
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")

    return httpx.Response(200, content=pieces())


async def drips(_asked: dict[str, Any]) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    return httpx.Response(200, content=pieces())


async def floods(_asked: dict[str, Any]) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    return httpx.Response(200, content=pieces())


class Network(httpx.AsyncBaseTransport):
    """Has an upstream at every address; the last of its behaviours is that of all further requests.

    Attributes:
        asked: the bodies of all requests.
        headers: theirs.
        most_at_once: requests that were in hand together.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = list(behaviours)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []
        self.most_at_once = self._at_once = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(json.loads(request.content))
        self.headers.append(request.headers)
        behaviour = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await behaviour(self.asked[-1])
        finally:
            self._at_once -= 1
