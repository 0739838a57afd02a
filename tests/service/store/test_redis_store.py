"""Redis that is full, stopped and back, or protected."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import redis_client, redis_store
from service.store.base import HEAD, Item, StoreFullError, StoreUnavailableError
from service.store.redis_store import RedisStore
from tests.service.faults import PATIENCE, wait_for
from tests.service.store.redis_server import RedisServer
from tests.support.redis_cluster import RedisCluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.stop()


def works(store: RedisStore) -> bool:
    try:
        return store.get_many("s", ["a"]) == [b"a" * HEAD]
    except StoreUnavailableError:
        return False


def test_a_stopped_server_is_an_error_and_is_used_again_when_it_is_back(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "REST_SECONDS", PATIENCE)
    server.start()
    store = RedisStore(server.url)
    store.put_many("s", [Item("a", b"a" * HEAD)])
    for _ in range(2):
        server.stop()
        with pytest.raises(StoreUnavailableError, match="the store does not answer"):
            store.get_many("s", ["a"])
        with pytest.raises(StoreUnavailableError, match="could not be reached a moment ago"):
            store.put_many("s", [Item("b", b"b" * HEAD)])
        server.start()
        store._resting_until = 0.0  # that moment is over
        assert works(store)
    store.close()


def test_the_server_may_be_down_at_the_start(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    store = RedisStore(server.url)
    assert "Redis does not answer" in caplog.text
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        store.size()
    server.start()
    wait_for(lambda: not works(store) and store.get_many("s", ["b"]) == [None] if _rested(store) else False)
    store.close()


def test_a_server_of_a_cluster_is_refused_with_the_reason(redis_cluster: RedisCluster) -> None:
    store = RedisStore(f"redis://127.0.0.1:{redis_cluster.ports[0]}")
    with pytest.raises(StoreUnavailableError, match=r"names a server of a Redis Cluster: give redis\+cluster://"):
        store.get_many("s", ["a", "b", "c"])
    with pytest.raises(StoreUnavailableError, match=r"names a server of a Redis Cluster"):
        store.put_many("s", [Item(one, b"x" * HEAD) for one in "abcdef"])
    store.close()


def _rested(store: RedisStore) -> bool:
    return time.monotonic() > store._resting_until


def test_a_server_that_hangs_is_not_waited_for_by_everyone(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepts connections and says nothing."""
    rest = redis_store.REST_SECONDS
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        monkeypatch.setattr(redis_client, "ANSWER_SECONDS", 0.2)
        monkeypatch.setattr(redis_store, "REST_SECONDS", PATIENCE)
        store = RedisStore(f"redis://127.0.0.1:{hanging.getsockname()[1]}")
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            store.get_many("s", ["a"])
        with pytest.raises(StoreUnavailableError, match="a moment ago"):
            store.get_many("s", ["a"])
        store.close()
    assert rest < PATIENCE


def fill(store: RedisStore, batches: int) -> None:
    for number in range(batches):
        store.put_many("s", [Item(f"{number}-{n}", b"x" * 100_000) for n in range(5)])


def test_a_full_server_refuses_all_of_a_batch(server: RedisServer) -> None:
    server.start("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    store = RedisStore(server.url)
    store.put_many("s", [Item("a", b"a" * HEAD)])
    fill(store, 1)
    with pytest.raises(StoreFullError, match="Redis has reached its maxmemory"):
        fill(store, 20)
    assert works(store)
    kept = store.get_many("s", [f"{number}-{n}" for number in range(20) for n in range(5)])
    assert sum(found is not None for found in kept) % 5 == 0
    assert (store.about()["capacity_bytes"], store.about()["evict"]) == (3 << 20, "noeviction")
    store.close()


def test_a_server_that_evicts_counts_it(server: RedisServer) -> None:
    server.start("--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
    store = RedisStore(server.url)
    fill(store, 20)
    size = store.size()
    assert size.evicted > 0
    assert size.documents + size.evicted == 100
    store.close()


@pytest.mark.parametrize("login", ["", "nobody:wrong@"])
def test_a_wrong_password_is_one_line_without_it(server: RedisServer, login: str) -> None:
    server.start("--requirepass", "right")
    with pytest.raises(StoreUnavailableError, match="Redis refuses the store's user and password") as raised:
        RedisStore(f"redis://{login}127.0.0.1:{server.port}")
    assert "wrong" not in str(raised.value)
    store = RedisStore(f"redis://:right@127.0.0.1:{server.port}")
    assert store.get_many("s", ["a"]) == [None]
    store.close()


@pytest.mark.parametrize(
    "url", ["redis://host:port", "redis://:secret/part@host:6379", "redis://localhost/many?socket_timeout=soon"]
)
def test_what_is_no_url_is_one_line(url: str) -> None:
    with pytest.raises(StoreUnavailableError, match="the store's URL is not one of Redis: give redis://") as raised:
        RedisStore(url)
    assert "secret" not in str(raised.value)
