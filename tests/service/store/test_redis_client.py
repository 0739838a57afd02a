"""What the client says becomes one line, and it waits for a server once, not twice."""

import socket
import threading

import pytest
import redis.exceptions as said

from service.store import redis_client
from service.store.base import StoreError, StoreFullError, StoreUnavailableError
from service.store.redis_client import client_of, options_of, store_error


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (said.OutOfMemoryError("command not allowed"), StoreFullError, "the store is full: Redis has reached its maxmemory"),
        (said.ConnectionError("a\n b"), StoreUnavailableError, "the store does not answer: a b"),
        (said.TimeoutError("late"), StoreUnavailableError, "the store does not answer: late"),
        (said.ClusterDownError("Hash slot not served"), StoreUnavailableError, "the store refuses: Hash slot not served"),
        (ValueError("x" * 999), StoreUnavailableError, f"the store's answer is none that Redis gives: {'x' * 200}"),
    ],
)
def test_an_error_is_one_line(error: Exception, kind: type[StoreError], line: str) -> None:
    assert isinstance(store_error(error), kind)
    assert str(store_error(error)).startswith(line)
    assert "\n" not in str(store_error(error))


def test_a_server_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "ANSWER_SECONDS", 0.1)
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=lambda: [taken.append(listener.accept()[0]) for _ in range(2)], daemon=True)
        server.start()
        client = client_of(options_of(f"redis://127.0.0.1:{listener.getsockname()[1]}?protocol=2"))
        with pytest.raises(said.TimeoutError):
            client.ping()
        assert len(taken) == 1
        socket.create_connection(listener.getsockname()).close()  # the thread's second
        server.join(10)
        client.close()
    for one in taken:
        one.close()
