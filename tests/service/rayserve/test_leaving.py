"""A call that is cancelled is one whose client has gone."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.rayserve.leaving import GONE, Leaving
from service.remote.replicas import GoneError
from tests.support.rays import imported

SCOPE: Scope = {"type": "http"}
HEAD: Message = {"type": "http.response.start", "status": 200}


class Client:
    """Sends a body in two pieces, waits, and keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = [{"type": "http.request", "body": piece} for piece in (b"b", b"a")]
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop()

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def test_a_client_that_stays_is_answered() -> None:
    async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
        await send(HEAD)
        for _ in range(2):
            await send({"type": "http.response.body", "body": (await receive())["body"]})

    client = Client()
    asyncio.run(Leaving(echo)(SCOPE, client.receive, client.send))
    assert [message.get("body") for message in client.sent] == [None, b"a", b"b"]


def test_a_cancelled_client_counts_as_gone_and_is_sent_nothing_more() -> None:
    seen: list[Message] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send(HEAD)
        seen.extend([await receive() for _ in range(4)])
        await send({"type": "http.response.body", "body": b"late"})

    async def leave() -> None:
        call = asyncio.create_task(Leaving(app)(SCOPE, client.receive, client.send))
        while client.messages:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    client = Client()
    asyncio.run(leave())
    assert seen[2:] == [GONE, GONE]  # again and again, as servers say it
    assert client.sent == [HEAD]


def test_a_second_cancellation_ends_what_does_not_listen() -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.Event().wait()

    async def leave() -> None:
        client = Client()
        call = asyncio.create_task(Leaving(app)(SCOPE, client.receive, client.send))
        for _ in range(2):
            await asyncio.sleep(0.01)
            call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(asyncio.wait_for(leave(), 60))


class Call:
    """Of a replica: it ends at once with an error, or never."""

    def __init__(self, ends: BaseException | None = None) -> None:
        self.ends, self.is_cancelled = ends, False

    def __await__(self) -> Any:
        if self.ends is not None:
            raise self.ends
        return asyncio.Event().wait().__await__()

    def cancel(self) -> None:
        self.is_cancelled = True

    def remote(self) -> "Call":
        return self


def started_call(call: Call) -> "asyncio.Task[Any]":
    ask = imported("service.rayserve.deployments").caller_of(SimpleNamespace(report=call))
    return asyncio.create_task(ask("report"))


def test_a_call_that_serve_cancels_waits_until_its_request_is_cancelled_or_else_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def leave() -> None:
        first = started_call(Call(asyncio.CancelledError()))
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        monkeypatch.setattr("service.rayserve.deployments.LEAVING_SECONDS", 0.0)
        with pytest.raises(GoneError):
            await started_call(Call(asyncio.CancelledError()))

    asyncio.run(leave())


def test_a_call_whose_request_is_cancelled_is_cancelled() -> None:
    async def leave() -> None:
        call = Call()
        task = started_call(call)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert call.is_cancelled

    asyncio.run(leave())


def test_an_answer_that_was_lost_with_its_node_is_asked_of_another_replica() -> None:
    async def lose() -> None:
        with pytest.raises(GoneError):
            await started_call(Call(imported("ray.exceptions").ObjectLostError("00", None, "")))

    asyncio.run(lose())
