"""A real server and a real cluster that speak TLS alone, with certificates of an authority of the test's own."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from service.settings import Settings
from service.store.base import HEAD, DocumentStore, Item, StoreUnavailableError
from service.store.opening import open_store
from tests.service.store.redis_server import RedisServer, need_tls
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import Certificates, certified

ITEMS = [Item(f"d{number}", f"d{number}".encode().ljust(HEAD, b".")) for number in range(60)]
IDS = [item.id for item in ITEMS]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return need_tls(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), certificates)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def cluster(tmp_path: Path, certificates: Certificates) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path, replicas=0, certificates=certificates)
    try:
        cluster.create()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize("kind", ["server", "cluster"])
def test_documents_go_through_tls(kind: str, request: pytest.FixtureRequest) -> None:
    store, space = opened(request.getfixturevalue(kind).url), uuid4().hex
    store.put_many(space, ITEMS)
    assert store.get_many(space, [*IDS, "unknown"]) == [*(item.content for item in ITEMS), None]
    store.close()


def opened(url: str) -> DocumentStore:
    store = open_store(Settings(store=url, store_replicas=0))
    assert store is not None
    return store


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["by nobody it trusts", "of another name"])
def test_a_server_with_a_certificate_that_does_not_fit_is_sent_nothing(server: RedisServer, tmp_path: Path, host: str) -> None:
    url = server.url.replace("127.0.0.1", host)
    if host == "127.0.0.1":
        url = f"{url.partition('?')[0]}?ssl_ca_certs={certified(tmp_path).authority}"
    store = opened(url)
    with pytest.raises(StoreUnavailableError, match=r"the store does not answer: .*(?i:certificate)"):
        store.put_many(uuid4().hex, ITEMS)
    store.close()
