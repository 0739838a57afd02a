from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.store.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Running, and empty at first; a test that stops it starts it again."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"
