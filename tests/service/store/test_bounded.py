"""What answers is no Redis, or one that has been taken over: an error in one line, in bounded time and memory."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from service.store import redis_client
from service.store.base import HEAD, Item, StoreUnavailableError
from service.store.redis_store import RedisStore
from tests.service.faults import PATIENCE

ENDLESS = b"x" * 65536


@contextmanager
def answering(*answers: bytes, again: bytes = b"", pause: float = 0.0) -> Iterator[str]:
    """The URL of a server that answers whatever is sent by these bytes in turn, the last one for ever, and `again` without end."""
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve(connection: socket.socket) -> None:
        left = list(answers)
        with suppress(OSError), connection:
            while connection.recv(65536):
                connection.sendall(left.pop(0) if len(left) > 1 else left[0])
                while again and not over.is_set():
                    connection.sendall(again)
                    time.sleep(pause)

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0?protocol=2"
    finally:
        over.set()
        listener.close()


USES: dict[str, Callable[[RedisStore], object]] = {
    "get": lambda store: store.get_many("n", ["a", "b"]),
    "sizes": lambda store: store.sizes("n", ["a", "b"]),
    "put": lambda store: store.put_many("n", [Item("a", b"x" * HEAD)]),
    "size": RedisStore.size,
}


@pytest.mark.parametrize("use", ["get", "sizes", "size"])
@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+OK\r\n",
        b":7\r\n",
        b"*1\r\n$3\r\nabc\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"$99999999999999999999999\r\n",
        b"$-7\r\n",
        b"*-7\r\n",
        b":" + b"9" * 5000 + b"\r\n",
        b"*1\r\n" * 20_000,
        b"\x00\xff\r\n",
    ],
)
def test_nonsense_is_one_line(use: str, nonsense: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.redis_client.ANSWER_SECONDS", 0.3)
    with answering(nonsense) as url:
        store = RedisStore(url)
        store._resting_until = 0.0
        with pytest.raises(StoreUnavailableError) as raised:
            USES[use](store)
        assert "\n" not in str(raised.value)
        store.close()


@pytest.mark.parametrize(
    ("again", "pause", "seconds", "said"),
    [(b"x", 0.05, 0.2, "an answer takes more than"), (ENDLESS, 0.0, PATIENCE, "an answer has more than")],
)
def test_an_endless_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, again: bytes, pause: float, seconds: float, said: str
) -> None:
    monkeypatch.setattr(redis_client, "MOST_SECONDS", seconds)
    monkeypatch.setattr(redis_client, "MOST_BYTES", 1 << 22)
    with answering(b"$400000000\r\n", again=again, pause=pause) as url:
        store = RedisStore(url)
        store._resting_until = 0.0
        with pytest.raises(StoreUnavailableError, match=said):
            store.get_many("n", ["a"])
        store.close()
