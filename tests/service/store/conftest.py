from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.redis_cluster import RedisCluster
from tests.service.store.redis_server import RedisServer, need_redis


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Running, and empty at first; a test that stops it starts it again."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def six_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters with a replica each."""
    need_redis()
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"))
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


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"
