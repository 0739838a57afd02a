"""What answers is no Redis: an error in one line."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from service.store.base import StoreUnavailableError
from service.store.redis_store import RedisStore


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of a server that answers whatever is sent by these bytes."""
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while connection.recv(65536):
                connection.sendall(answer)

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
    "size": RedisStore.size,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+OK\r\n",
        b":7\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"$99999999999999999999999\r\n",
        b"*1\r\n" * 20_000,
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
