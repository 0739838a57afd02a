from pathlib import Path

import pytest

from service.settings import Settings
from service.store.base import StoreUnavailableError
from service.store.lmdb_store import LmdbStore
from service.store.opening import open_store
from service.store.redis_cluster import RedisClusterStore
from service.store.redis_store import RedisStore
from tests.service.store.redis_server import RedisServer
from tests.support.redis_cluster import RedisCluster


def test_by_default_there_is_no_store() -> None:
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


def test_a_url_of_a_cluster_is_one(redis_cluster: RedisCluster) -> None:
    store = open_store(Settings(store=redis_cluster.url, store_replicas=0))
    assert isinstance(store, RedisClusterStore)
    assert store.about()["replicas"] == 0
    store.close()


@pytest.mark.parametrize("scheme", ["valkey", "file", "Redis", "http"])
def test_a_url_of_another_scheme_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.chdir(tmp_path)
    known = r"redis://, rediss://, unix://, redis\+cluster://, rediss\+cluster:// or a directory"
    with pytest.raises(StoreUnavailableError, match=f"the store's URL begins with {scheme}://: give {known}"):
        open_store(Settings(store=f"{scheme}://user:secret@localhost:6379"))
    assert not list(tmp_path.iterdir())
