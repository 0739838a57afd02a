from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import redis_client
from tests.service.faults import PATIENCE
from tests.service.store.redis_server import RedisServer
from tests.support.redis_cluster import RedisCluster

STALL_MILLISECONDS = 60_000  # longer than a machine stalls


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Running, and empty at first; a test that stops it starts it again."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def six_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters with a replica each, which takes its master's place where a test wants that: no stall is taken for a death."""
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"), silent=STALL_MILLISECONDS)
    try:
        cluster.create()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def redis_cluster(six_servers: RedisCluster) -> Iterator[RedisCluster]:
    """All six answer, and do so again after a test that killed some. What is in it is shared."""
    yield six_servers
    six_servers.mend()
    six_servers.replace_after(STALL_MILLISECONDS)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of a machine that stalls is waited for; who tests how long one is waited for says otherwise."""
    for name in ("CONNECT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(redis_client, name, PATIENCE)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"
