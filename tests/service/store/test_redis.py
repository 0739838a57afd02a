"""Redis that is full, stopped and back, protected, behind TLS, or none at all; alone or in a cluster."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from service.settings import Settings
from service.store import redis_client, redis_store
from service.store.base import HEAD, DocumentStore, Item, StoreFullError, StoreUnavailableError
from service.store.lmdb_store import LmdbStore
from service.store.opening import open_store
from service.store.redis_cluster import parsed
from service.store.redis_store import RedisStore
from tests.service.faults import PATIENCE, wait_for
from tests.service.store.redis_server import Certificates, RedisServer, certified, need_tls, until
from tests.support.redis_cluster import RedisCluster


def opened(url: str) -> DocumentStore:
    store = open_store(Settings(store=url, store_replicas=0))
    assert store is not None
    return store


@pytest.mark.parametrize("evict", [False, True])
def test_a_path_is_a_directory(directory: Path, evict: bool) -> None:
    store = open_store(Settings(store=str(directory), store_bytes=5 << 20, store_evict=evict))
    assert isinstance(store, LmdbStore)
    assert store.about() == {"kind": "lmdb", "capacity_bytes": 5 << 20, "evict": evict}
    store.close()


CLUSTER = r"is not one of a Redis Cluster: give redis\+cluster://"
ALONE = "is not one of Redis: give redis://"
KNOWN = r"redis://, rediss://, unix://, redis\+cluster://, rediss\+cluster:// or a directory"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("valkey://user:secret@localhost:6379", f"begins with valkey://: give {KNOWN}"),
        ("Redis://user:secret@localhost:6379", f"begins with Redis://: give {KNOWN}"),
        ("redis://host:port", ALONE),
        ("redis://:secret/part@host:6379", ALONE),
        ("redis://localhost/many?socket_timeout=soon", ALONE),
        ("redis+cluster://", CLUSTER),
        ("redis+cluster://host:port", CLUSTER),
        ("redis+cluster://a:1,,b:2", CLUSTER),
        ("redis+cluster://:secret/part@host:6379", CLUSTER),
        ("redis+cluster://a:1,b:2/3", CLUSTER),
        ("redis+cluster://a?socket_timeout=soon", CLUSTER),
        ("redis+cluster://a:1:2", CLUSTER),
        ("redis+cluster://a:99999", CLUSTER),
    ],
)
def test_what_is_no_url_is_one_line_without_the_password(
    url: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailableError, match=f"the store's URL {problem}") as raised:
        opened(url)
    assert "secret" not in str(raised.value)
    assert not list(tmp_path.iterdir()), "it is no directory"


@pytest.mark.parametrize(
    ("url", "first", "others"),
    [
        ("redis+cluster://a", "redis://a", []),
        ("redis+cluster://a:1,b:2", "redis://a:1", [("b", 2)]),
        ("redis+cluster://u:p%40ss,w@a:1,[::1]:2/0", "redis://u:p%40ss,w@a:1/0", [("::1", 2)]),
        ("rediss+cluster://:p@a,b?socket_timeout=3", "rediss://:p@a?socket_timeout=3", [("b", 6379)]),
    ],
)
def test_a_url_of_a_cluster_names_servers_and_how_to_reach_them(url: str, first: str, others: list[tuple[str, int]]) -> None:
    assert parsed(url) == (first, others)


class Alone(RedisCluster):
    """A cluster of one server, which is not started yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, masters=1, replicas=0, password="right")

    def start_all(self) -> None:
        (port,) = self.ports
        self.start(port)
        self.ask(port, "CLUSTER ADDSLOTSRANGE", 0, 16383)
        until(self.whole)


class Place(NamedTuple):
    """A server that is not started yet; `start` gives it the password `right`."""

    url: str
    start: Callable[[], object]


@pytest.fixture(params=["server", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "server":
        server = RedisServer(tmp_path, password="right")
        yield Place(server.url, server.start)
        server.stop()
    else:
        cluster = Alone(tmp_path)
        yield Place(cluster.url, cluster.start_all)
        cluster.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.stop()


def found(store: DocumentStore) -> object:
    """What the store has of a document; "nothing" while it does not answer."""
    try:
        return store.get_many("s", ["a"])[0]
    except StoreUnavailableError:
        return "nothing"


def test_it_may_be_down_at_the_start(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(place.url.replace("//", "//:right@"))
    assert "does not answer" in caplog.text
    with pytest.raises(StoreUnavailableError, match="the store does not answer"):
        store.size()
    place.start()
    wait_for(lambda: found(store) is None)
    store.close()


@pytest.mark.parametrize("login", ["", "nobody:wrong@"])
def test_a_wrong_password_is_one_line_without_it(place: Place, login: str) -> None:
    place.start()
    with pytest.raises(StoreUnavailableError, match="Redis refuses the store's user and password") as raised:
        opened(place.url.replace("//", f"//{login}"))
    assert "wrong" not in str(raised.value)
    store = opened(place.url.replace("//", "//:right@"))
    wait_for(lambda: found(store) is None)
    store.close()


def test_a_cluster_and_a_server_alone_are_told_apart(redis_server: RedisServer, redis_cluster: RedisCluster) -> None:
    with pytest.raises(StoreUnavailableError, match=r"is of no Redis Cluster .*: give redis:// for one server alone"):
        opened(redis_server.url.replace("redis://", "redis+cluster://"))
    store = opened(f"redis://127.0.0.1:{redis_cluster.ports[0]}")
    with pytest.raises(StoreUnavailableError, match=r"names a server of a Redis Cluster: give redis\+cluster://"):
        store.get_many("s", ["a", "b", "c"])
    with pytest.raises(StoreUnavailableError, match=r"names a server of a Redis Cluster"):
        store.put_many("s", [Item(one, b"x" * HEAD) for one in "abcdef"])
    store.close()


def test_a_stopped_server_is_an_error_and_is_used_again_when_it_is_back(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "REST_SECONDS", PATIENCE)
    server.start()
    store = RedisStore(server.url)
    store.put_many("s", [Item("a", b"a" * HEAD)])
    server.stop()
    with pytest.raises(StoreUnavailableError, match="the store does not answer"):
        store.get_many("s", ["a"])
    with pytest.raises(StoreUnavailableError, match="could not be reached a moment ago"):
        store.put_many("s", [Item("b", b"b" * HEAD)])
    server.start()
    store._resting_until = 0.0  # that moment is over
    assert found(store) == b"a" * HEAD
    store.close()


def test_a_server_that_hangs_is_waited_for_once_and_not_by_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepts connections and says nothing."""
    monkeypatch.setattr(redis_client, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(redis_store, "REST_SECONDS", PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        store = RedisStore(f"redis://127.0.0.1:{hanging.getsockname()[1]}?protocol=2")
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            store.get_many("s", ["a"])
        with pytest.raises(StoreUnavailableError, match="a moment ago"):
            store.get_many("s", ["a"])
        store.close()
        hanging.setblocking(False)
        for _ in range(2):  # at the start and at the first use
            hanging.accept()[0].close()
        with pytest.raises(BlockingIOError):
            hanging.accept()


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
    assert found(store) == b"a" * HEAD
    kept = store.get_many("s", [f"{number}-{n}" for number in range(20) for n in range(5)])
    assert sum(one is not None for one in kept) % 5 == 0
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


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of a server that answers whatever is sent by these bytes."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(65536):
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0?protocol=2"
        server.shutdown()


USES: tuple[Callable[[RedisStore], object], ...] = (
    lambda store: store.get_many("n", ["a", "b"]),
    lambda store: store.sizes("n", ["a", "b"]),
    RedisStore.size,
)


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
def test_what_answers_nonsense_is_one_line(nonsense: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "ANSWER_SECONDS", 0.1)
    with answering(nonsense) as url:
        store = RedisStore(url)
        for use in USES:
            store._resting_until = 0.0
            with pytest.raises(StoreUnavailableError, match=r"^the store.{1,250}$"):
                use(store)
        store.close()


ITEMS = [Item(f"d{number}", f"d{number}".encode().ljust(HEAD, b".")) for number in range(60)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    need_tls()
    return certified(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def behind_tls(tmp_path: Path, certificates: Certificates) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, certificates=certificates)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def cluster_behind_tls(tmp_path: Path, certificates: Certificates) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path, replicas=0, certificates=certificates)
    try:
        cluster.create()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize("kind", ["behind_tls", "cluster_behind_tls"])
def test_documents_go_through_tls(kind: str, request: pytest.FixtureRequest) -> None:
    store, space = opened(request.getfixturevalue(kind).url), uuid4().hex
    store.put_many(space, ITEMS)
    ids = [item.id for item in ITEMS]
    assert store.get_many(space, [*ids, "unknown"]) == [*(item.content for item in ITEMS), None]
    store.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["by nobody it trusts", "of another name"])
def test_a_server_with_a_certificate_that_does_not_fit_is_sent_nothing(behind_tls: RedisServer, tmp_path: Path, host: str) -> None:
    url = behind_tls.url.replace("127.0.0.1", host)
    if host == "127.0.0.1":
        url = f"{url.partition('?')[0]}?ssl_ca_certs={certified(tmp_path).authority}"
    store = opened(url)
    with pytest.raises(StoreUnavailableError, match=r"the store does not answer: .*(?i:certificate)"):
        store.put_many(uuid4().hex, ITEMS)
    store.close()
