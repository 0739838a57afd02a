from pathlib import Path

import pytest

from service.settings import Settings
from service.store.lmdb_store import LmdbStore
from service.store.opening import open_store
from service.store.redis_store import RedisStore
from tests.service.store.redis_server import RedisServer


def test_none_is_asked_for_by_default() -> None:
    assert open_store(Settings()) is None


@pytest.mark.parametrize("evict", [False, True])
def test_a_path_is_a_directory(directory: Path, evict: bool) -> None:
    store = open_store(Settings(store=str(directory), store_bytes=5 << 20, store_evict=evict))
    assert isinstance(store, LmdbStore)
    assert store.about() == {"kind": "lmdb", "capacity_bytes": 5 << 20, "evict": evict}
    store.close()


def test_a_url_is_redis(redis_server: RedisServer) -> None:
    store = open_store(Settings(store=redis_server.url))
    assert isinstance(store, RedisStore)
    store.close()
