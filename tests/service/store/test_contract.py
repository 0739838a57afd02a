"""What every store does alike: LMDB in a directory, a real Redis, and a real cluster of six."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service.store.base import HEAD, DocumentStore, Item, Renewal
from service.store.lmdb_store import LmdbStore
from service.store.redis_cluster import RedisClusterStore
from service.store.redis_store import RedisStore
from tests.service.faults import PATIENCE, wait_for

IDS = st.text(st.characters(codec=None), min_size=1, max_size=40)


@pytest.fixture(params=["lmdb", "redis", "redis cluster"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentStore]:
    if request.param == "lmdb":
        store: DocumentStore = LmdbStore(tmp_path / "store", 64 << 20)
    elif request.param == "redis":
        store = RedisStore(request.getfixturevalue("redis_server").url)
    else:
        store = RedisClusterStore(request.getfixturevalue("redis_cluster").url)
    yield store
    store.close()


@pytest.fixture
def space() -> str:
    """A namespace of its own: the tests share one Redis."""
    return uuid4().hex


def content(word: str, length: int = 100) -> bytes:
    return (uuid4().hex + word).encode().ljust(length, b".")


def test_what_is_put_is_found_until_it_is_deleted(store: DocumentStore, space: str) -> None:
    items = [Item(f"d{n}", content("x", HEAD + n * 50)) for n in range(40)]
    store.put_many(space, items)
    ids = ["d3", "unknown", "d39", "d3", ""]
    assert store.get_many(space, ids) == [items[3].content, None, items[39].content, items[3].content, None]
    assert store.get_many(space + "2", ids) == [None] * 5, "another namespace"
    assert store.delete(space + "2", "d3") is False
    assert (store.delete(space, "d3"), store.delete(space, "d3")) == (True, False)
    assert store.get_many(space, ["d3", "d4"]) == [None, items[4].content]
    assert store.get_many(space, []) == []


@given(first=IDS, second=IDS)
@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_id_names_one_document(store: DocumentStore, first: str, second: str) -> None:
    space = uuid4().hex
    store.put_many(space, [Item(first, b"1" * HEAD), Item(second, b"2" * HEAD)])
    assert store.get_many(space, [second, first]) == [b"2" * HEAD, (b"1" if first != second else b"2") * HEAD]


def test_what_has_expired_is_gone(store: DocumentStore, space: str) -> None:
    for left in (400, 4_000, 40_000):
        soon = int(time.time() * 1000) + left
        store.put_many(space, [Item("a", content("x"), soon), Item("b", content("y"), soon + 3_600_000), Item("c", content("z"))])
        found = store.get_many(space, ["a", "b", "c"])
        if time.time() * 1000 < soon:  # else this machine was away for as long
            break
    assert None not in found
    wait_for(lambda: time.time() * 1000 > soon + 1, 2 * PATIENCE)
    assert [found is None for found in store.get_many(space, ["a", "b", "c"])] == [True, False, False]
    assert store.delete(space, "a") is False
    store.put_many(space, [Item("b", content("y"))])  # for ever now
    assert store.get_many(space, ["b"]) != [None]


def test_renewing_replaces_what_was_read_and_nothing_newer(store: DocumentStore, space: str) -> None:
    old, newer, renewed = (content(word) for word in ("old", "newer", "renewed"))
    later = int(time.time() * 1000) + 3_600_000
    store.put_many(space, [Item("same", old, later), Item("overwritten", old), Item("deleted", old)])
    store.put_many(space, [Item("overwritten", newer)])
    store.delete(space, "deleted")
    store.renew_many(space, [Renewal(old[:HEAD], Item(name, renewed, later)) for name in ("same", "overwritten", "deleted", "new")])
    assert store.get_many(space, ["same", "overwritten", "deleted", "new"]) == [renewed, newer, None, None]


def test_the_size_counts_documents_and_bytes(store: DocumentStore, space: str) -> None:
    before = store.size()
    store.put_many(space, [Item(f"d{n}", content("x", 50_000)) for n in range(20)])
    after = store.size()
    assert after.documents == before.documents + 20
    assert after.bytes >= before.bytes + 1_000_000
    assert store.about()["kind"] == store.kind


def test_threads_share_a_store(store: DocumentStore, space: str) -> None:
    def work(thread: int) -> bool:
        for n in range(20):
            mine = Item(f"{thread}-{n}", content(str(thread), 5000))
            store.put_many(space, [mine, Item("shared", content("s", 5000))])
            found, shared = store.get_many(space, [mine.id, "shared"])
            if found != mine.content or shared is None or len(shared) != 5000:
                return False
            if n % 3 == 0:
                store.delete(space, mine.id)
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))
    kept = store.get_many(space, [f"{thread}-{n}" for thread in range(6) for n in range(20)])
    assert sum(found is not None for found in kept) == 6 * 13
