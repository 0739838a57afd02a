"""Real HTTP servers that score, and that misbehave as upstreams do."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self
from uuid import uuid4

Behaviour = Callable[[asyncio.StreamWriter, dict[str, Any]], Awaitable[None]]


def overlap(query: str, passage: str) -> float:
    """The share of the query's words that a passage has: what a model of these servers says."""
    words = set(query.lower().split())
    return len(words & set(passage.lower().replace(".", "").split())) / len(words)


def respond(writer: asyncio.StreamWriter, content: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)


async def scores(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    """An answer like Jina's."""
    found = [{"index": n, "relevance_score": overlap(asked["query"], text)} for n, text in enumerate(asked["documents"])]
    respond(writer, json.dumps({"results": sorted(found, key=lambda one: -one["relevance_score"])}).encode())


async def tei(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    """An answer like text-embeddings-inference's, with logits; it knows no documents."""
    if "texts" not in asked:
        respond(writer, b'{"error": "missing field `texts`"}', 422)
        return
    found = [{"index": n, "score": 10 * overlap(asked["query"], text) - 5} for n, text in enumerate(asked["texts"])]
    respond(writer, json.dumps(found).encode())


def says(content: str | bytes, status: int = 200, **headers: str) -> Behaviour:
    """Answers this, whatever is asked."""

    async def answer(writer: asyncio.StreamWriter, _asked: dict[str, Any]) -> None:
        raw = content if isinstance(content, bytes) else content.encode()
        respond(writer, raw, status, {name.replace("_", "-"): value for name, value in headers.items()})

    return answer


async def babbles(writer: asyncio.StreamWriter, _asked: dict[str, Any]) -> None:
    """Fails, with other words each time."""
    respond(writer, uuid4().hex.encode(), 500)


async def hangs(_writer: asyncio.StreamWriter, _asked: dict[str, Any]) -> None:
    """Never answers."""
    await asyncio.sleep(3600)


async def dies(writer: asyncio.StreamWriter, _asked: dict[str, Any]) -> None:
    """Hangs up in the middle of its answer."""
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"results": [')
    await writer.drain()
    writer.transport.abort()


async def drips(writer: asyncio.StreamWriter, _asked: dict[str, Any]) -> None:
    """A byte now and then, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def floods(writer: asyncio.StreamWriter, _asked: dict[str, Any]) -> None:
    """Without end, and fast."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()


class Server:
    """A server in a thread of its own; the last of its behaviours is that of all further requests.

    Attributes:
        asked: the bodies of all requests.
        headers: theirs.
        most_at_once: requests that were in hand together.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = list(behaviours)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = self._at_once = 0
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/rerank"

    def stop(self) -> None:
        """Nobody listens any more."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._over.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        asked = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.asked.append(asked)
        self.headers.append(headers)
        behaviour = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await behaviour(writer, asked)
            await writer.drain()
        finally:
            self._at_once -= 1
