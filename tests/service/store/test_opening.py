from pathlib import Path

import pytest

from service.settings import Settings
from service.store.base import StoreUnavailableError
from service.store.lmdb_store import LmdbStore
from service.store.opening import open_store


@pytest.mark.parametrize("evict", [False, True])
def test_a_path_is_a_directory(directory: Path, evict: bool) -> None:
    store = open_store(Settings(store=str(directory), store_bytes=5 << 20, store_evict=evict))
    assert isinstance(store, LmdbStore)
    assert store.about() == {"kind": "lmdb", "capacity_bytes": 5 << 20, "evict": evict}
    store.close()


@pytest.mark.parametrize("scheme", ["valkey", "Redis"])
def test_a_url_of_another_scheme_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.chdir(tmp_path)
    known = r"redis://, rediss://, unix://, redis\+cluster://, rediss\+cluster:// or a directory"
    with pytest.raises(StoreUnavailableError, match=f"the store's URL begins with {scheme}://: give {known}"):
        open_store(Settings(store=f"{scheme}://user:secret@localhost:6379"))
    assert not list(tmp_path.iterdir())
