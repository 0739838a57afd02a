"""A real session with a gate and faults put in, and a client that may go: shared by the tests of the worker and of the endpoint."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.types import Message

from keyblock.runtime.session import Session

Ints = NDArray[np.int64]
PATIENCE = 30.0  # seconds until a test gives up; nothing here takes a tenth of it


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE, pause: float = 0.001) -> None:
    """Until it holds; for so many seconds at most, with such pauses."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(pause)


class Faulty:
    """The real session behind a gate that tests close, with faults that they put in."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.open = threading.Event()
        self.open.set()
        self.fault: BaseException | None = None
        self.only_with: int | None = None  # a token id: only batches that hold it are hit
        self.pause_after: int | None = None  # batches, then the gate is closed
        self.memory = 0  # tokens: only larger batches are hit
        self.shapes: list[tuple[int, ...]] = []
        self.stopped: Callable[[], object] = bool  # called when a batch stands before the closed gate

    def score(self, ids: Ints, types: Ints, mask: Ints) -> NDArray[np.float32]:
        if self.pause_after is not None and len(self.shapes) >= self.pause_after:
            self.open.clear()
            self.pause_after = None
        if not self.open.is_set():
            self.stopped()
        assert self.open.wait(PATIENCE)
        self.shapes.append(ids.shape)
        if self.fault is not None and (self.only_with is None or self.only_with in ids) and ids.size > self.memory:
            raise self.fault
        return self.session.score(ids, types, mask)


class Connection:
    """A client on the ASGI interface, which may go at any time."""

    def __init__(
        self, request: dict[str, Any] | bytes, method: str = "POST", path: str = "/rerank", *, more: bool = False, **headers: str
    ) -> None:
        self._method, self._path = method, path
        self._headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self._arriving: asyncio.Queue[Message] = asyncio.Queue()
        self.arrive(request if isinstance(request, bytes) else json.dumps(request).encode(), more=more)
        self.reading = asyncio.Event()
        self.reading.set()
        self.sent: list[Message] = []

    def arrive(self, body: bytes, *, more: bool) -> None:
        """The next piece of the body arrives."""
        self._arriving.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def go(self) -> None:
        """The client goes."""
        self._arriving.put_nowait({"type": "http.disconnect"})

    @property
    def taken(self) -> bool:
        """Whether everything that has arrived was asked for."""
        return self._arriving.empty()

    async def receive(self) -> Message:
        message = await self._arriving.get()
        if message["type"] == "http.disconnect":
            self.go()  # which is said as often as it is asked
        return message

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        await self.reading.wait()

    async def ask(self, app: Any) -> None:
        """Send the request, and take the answer."""
        async with asyncio.timeout(PATIENCE):
            await app(self.scope(), self.receive, self.send)

    async def leave(self, app: Any, when: Callable[[], Any]) -> None:
        """Send the request, and go once this holds."""
        task = asyncio.create_task(self.ask(app))
        await came(when)
        self.go()
        await task

    @property
    def status(self) -> int:
        """Of the answer."""
        return int(self.sent[0]["status"])

    @property
    def said(self) -> Any:
        """The answer's JSON."""
        return json.loads(b"".join(message["body"] for message in self.sent[1:]))

    def scope(self) -> dict[str, Any]:
        path = {"path": self._path, "raw_path": self._path.encode(), "root_path": "", "query_string": b""}
        server = {"server": ("test", 80), "client": ("test", 1), "scheme": "http", "http_version": "1.1"}
        return {"type": "http", "method": self._method, "headers": self._headers, "asgi": {"version": "3.0"}, **path, **server}


async def came(condition: Callable[[], Any]) -> None:
    """Wait on the event loop until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)
