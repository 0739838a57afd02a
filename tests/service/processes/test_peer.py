"""Calls between two ends of a socket; both are on one event loop here."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.errors import EngineError
from service.processes.peer import Kind, Peer, UnexpectedError, framed, read_frame
from service.remote.replicas import GoneError


async def echo(*arguments: Any) -> Any:
    return arguments


async def fails() -> None:
    raise EngineError("the model failed")


async def breaks() -> None:
    raise ZeroDivisionError("not expected")


HANDLERS = {"echo": echo, "fails": fails, "breaks": breaks}


def between(work: Callable[[Peer, Peer], Awaitable[Any]], handlers: Any = HANDLERS) -> Any:
    """What the work returns that has both ends of a connection; the second one answers."""

    async def run() -> Any:
        peers = Peer({}), Peer(handlers)
        for peer, end in zip(peers, socket.socketpair(), strict=True):
            await asyncio.get_running_loop().create_connection(lambda peer=peer: peer, sock=end)
        try:
            return await work(*peers)
        finally:
            for peer in peers:
                peer.close()
            await asyncio.sleep(0)

    return asyncio.run(run())


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=300_000), max_size=8))
def test_what_is_sent_arrives_whatever_its_size(texts: list[bytes]) -> None:
    """Many calls at once on one connection."""
    answers = between(lambda peer, _: asyncio.gather(*(peer.ask("echo", number, text) for number, text in enumerate(texts))))
    assert answers == [(number, text) for number, text in enumerate(texts)]


def test_frames_in_any_pieces_are_the_same_frames() -> None:
    """A byte at a time, and two at once."""
    sent = framed((Kind.CALL, 0, ("echo", (np.arange(5),)))) * 2
    received: list[Any] = []

    async def note(array: Any) -> None:
        received.append(array.tolist())

    async def run() -> None:
        peer = Peer({"echo": note})
        for byte in sent:
            peer.data_received(bytes([byte]))
        peer.data_received(sent)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert received == [[0, 1, 2, 3, 4]] * 4


def test_failures_are_raised_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What a call may raise is raised here; what nobody expected is logged there, and the connection stays."""

    async def run(peer: Peer, _: Peer) -> Any:
        with pytest.raises(EngineError, match="the model failed"):
            await peer.ask("fails")
        with pytest.raises(UnexpectedError, match="breaks failed in another process"):
            await peer.ask("breaks")
        return await peer.ask("echo", 1)

    assert between(run) == (1,)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("how", ["cancelled", "gone"])
def test_a_cancelled_call_leaves_no_work_behind(how: str) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def run(peer: Peer, _: Peer) -> None:
        asking = asyncio.create_task(peer.ask("wait"))
        await began.wait()
        if how == "gone":
            peer.close()
        else:
            asking.cancel()
        await ended.wait()
        with pytest.raises(GoneError if how == "gone" else asyncio.CancelledError):
            await asking

    between(run, {"wait": wait})


def test_nobody_waits_for_an_end_that_is_gone() -> None:

    async def run(peer: Peer, other: Peer) -> None:
        assert (peer.connected, peer.has_answered) == (True, False)
        await peer.ask("echo")
        assert peer.has_answered
        other.close()
        with pytest.raises(GoneError, match="has gone"):
            await peer.ask("echo")
        with pytest.raises(GoneError):
            await peer.ask("echo")
        assert not peer.connected

    between(run)


def test_a_frame_is_read_where_no_event_loop_runs_yet() -> None:
    ours, its = socket.socketpair()
    with its:
        ours.sendall(framed({"a": 1}))
        assert read_frame(its) == {"a": 1}
        ours.close()
        with pytest.raises(EOFError, match="the other end is gone"):
            read_frame(its)
