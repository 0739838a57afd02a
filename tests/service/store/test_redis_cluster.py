"""A real cluster of six servers: which documents an outage takes, failovers and a resharding under load, and what WAIT promises."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

import pytest
from redis.crc import key_slot

from service.store.base import AWAY, HEAD, Item, Renewal, StoreUnavailableError
from service.store.redis_client import key_of
from service.store.redis_cluster import PREFIX, RedisClusterStore
from tests.service.store.redis_server import until
from tests.support.redis_cluster import SILENT_MILLISECONDS, RedisCluster

IDS = [f"d{number}" for number in range(60)]


@pytest.fixture
def store(redis_cluster: RedisCluster) -> Iterator[RedisClusterStore]:
    store = RedisClusterStore(redis_cluster.url)
    yield store
    store.close()


@pytest.fixture
def space(store: RedisClusterStore) -> str:
    """A namespace of its own, with a document under each of IDS."""
    space = uuid4().hex
    store.put_many(space, [Item(one, content(one)) for one in IDS])
    return space


def content(identity: str, version: int = 0) -> bytes:
    return f"{identity}:{version}".encode().ljust(HEAD, b".")


def ids_on(cluster: RedisCluster, space: str, port: int) -> list[str]:
    """The ids of the documents on a server."""
    return [one for one in IDS if cluster.owner(key_of(PREFIX, space, one)) == port]


def only_document_of_a_slot(cluster: RedisCluster, space: str, port: int) -> tuple[str, int]:
    """A document on a server and its slot, which holds nothing else (a shared key may fall into a slot)."""
    slots = ((one, key_slot(key_of(PREFIX, space, one))) for one in ids_on(cluster, space, port))
    return next((one, slot) for one, slot in slots if cluster.ask(port, "CLUSTER COUNTKEYSINSLOT", slot) == 1)


def master_and_replica(cluster: RedisCluster) -> tuple[int, int]:
    """A master and its replica."""
    master, (replica, *_) = next(iter(cluster.masters().items()))
    return master, replica


def test_every_server_has_some_and_ids_in_braces_are_spread_as_any(store: RedisClusterStore, redis_cluster: RedisCluster) -> None:
    space, braced = uuid4().hex, [f"{{tenant}}:{number}" for number in range(60)]
    store.put_many(space, [Item(one, content(one)) for one in braced])
    assert store.get_many(space, braced) == [content(one) for one in braced]
    shares = dict.fromkeys(redis_cluster.masters(), 0)
    for one in braced:
        shares[redis_cluster.owner(key_of(PREFIX, space, one))] += 1
    assert min(shares.values()) > 5


def test_an_outage_takes_its_documents_and_no_other(
    store: RedisClusterStore, redis_cluster: RedisCluster, space: str, caplog: pytest.LogCaptureFixture
) -> None:
    master, replica = master_and_replica(redis_cluster)
    lost = ids_on(redis_cluster, space, master)
    redis_cluster.kill(replica)
    redis_cluster.kill(master)
    assert store.get_many(space, IDS) == [AWAY if one in lost else content(one) for one in IDS]
    assert store.sizes(space, [*IDS, "unknown"])[: len(IDS)] == [AWAY if one in lost else HEAD for one in IDS]
    assert caplog.text.count("does not answer") == 1  # a line for the outage, not for each document
    kept = next(one for one in IDS if one not in lost)
    store.put_many(space, [Item(kept, content(kept, 1))])
    assert store.delete(space, kept)
    with pytest.raises(StoreUnavailableError, match="the store does not answer: "):
        store.put_many(space, [Item(lost[0], content(lost[0], 1)), Item(kept, content(kept, 2))])
    with pytest.raises(StoreUnavailableError):
        store.delete(space, lost[0])
    assert store.size().away == store.about()["servers_away"] == 1
    redis_cluster.mend()
    until(lambda: AWAY not in store.get_many(space, IDS))
    assert store.size().away == 0
    assert "answers again" in caplog.text


class Load:
    """Writers and readers, and what they have seen."""

    def __init__(self, store: RedisClusterStore, space: str) -> None:
        self.acknowledged: dict[str, int] = {}
        self.tried: dict[str, int] = {}
        self.refused = self.read = 0
        self.wrong: list[object] = []
        self._store, self._space, self._over = store, space, threading.Event()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        with ThreadPoolExecutor(4) as pool:
            works = [pool.submit(self._write, number) for number in range(2)] + [pool.submit(self._read) for _ in range(2)]
            try:
                yield
            finally:
                self._over.set()
            for work in works:
                work.result()

    def _write(self, number: int) -> None:
        """Each writer has ids of its own, which it writes again and again, a few at a time."""
        mine, version = IDS[number::2], 0
        while not self._over.is_set():
            version += 1
            for start in range(0, len(mine), 5):
                part = mine[start : start + 5]
                self.tried.update(dict.fromkeys(part, version))
                try:
                    self._store.put_many(self._space, [Item(one, content(one, version)) for one in part])
                    self.acknowledged.update(dict.fromkeys(part, version))
                except StoreUnavailableError:
                    self.refused += 1
            time.sleep(0.005)

    def _read(self) -> None:
        while not self._over.is_set():
            before = dict(self.acknowledged)
            for one, found in zip(IDS, self._store.get_many(self._space, IDS), strict=True):
                if found is not AWAY and not self._fits(one, found, before.get(one, 0)):
                    self.wrong.append((one, found, before.get(one)))
            self.read += 1
            time.sleep(0.005)

    def _fits(self, identity: str, found: bytes | None, least: int) -> bool:
        """Whether the content found was acknowledged, or tried since."""
        return found is not None and least <= int(found.rstrip(b".").split(b":")[1]) <= self.tried.get(identity, 0)

    def check(self) -> None:
        """All that was acknowledged is there, and nothing else was ever read."""
        found = self._store.get_many(self._space, IDS)
        lost = [one for one, got in zip(IDS, found, strict=True) if got is AWAY or not self._fits(one, got, self.acknowledged[one])]
        assert (lost, self.wrong) == ([], [])
        assert len(self.acknowledged) == len(IDS)


def test_a_failover_under_load_loses_nothing_that_was_acknowledged(
    store: RedisClusterStore, redis_cluster: RedisCluster, space: str
) -> None:
    redis_cluster.replace_after(SILENT_MILLISECONDS)
    load = Load(store, space)
    with load.under_way():
        until(lambda: len(load.acknowledged) == len(IDS))
        master, replica = master_and_replica(redis_cluster)
        redis_cluster.kill(master)
        until(lambda: replica in redis_cluster.masters())
        until(lambda: AWAY not in store.get_many(space, IDS))
        refused = load.refused
        redis_cluster.mend()  # the old one comes back as a replica: from now on all can be acknowledged again
        last = dict(load.acknowledged)
        until(lambda: all(load.acknowledged[one] > last[one] for one in IDS))
    assert refused > 0, "what had no replica was not acknowledged"
    load.check()


def test_a_resharding_under_load_is_not_noticed(store: RedisClusterStore, redis_cluster: RedisCluster, space: str) -> None:
    giver, taker, *_ = redis_cluster.masters()
    had = _slots(store, giver)
    load = Load(store, space)
    with load.under_way():
        until(lambda: len(load.acknowledged) == len(IDS))
        redis_cluster.reshard(giver, taker, 300)
        last = dict(load.acknowledged)
        until(lambda: all(load.acknowledged[one] > last[one] for one in IDS))
    load.check()
    assert (load.refused, load.read > 0) == (0, True)
    store._cluster._read_map()
    assert _slots(store, giver) == had - 300


def _slots(store: RedisClusterStore, port: int) -> int:
    """How many a server has, as the store knows."""
    known = store._cluster._cluster
    assert known is not None
    return sum(first.port == port for first, *_ in known.nodes_manager.slots_cache.values())


def test_a_slot_on_the_move_is_read_from_both_servers(store: RedisClusterStore, redis_cluster: RedisCluster, space: str) -> None:
    """A slot is held half way: what is there is the giver's, what is not there yet is the taker's, by ASK."""
    giver, taker, *_ = redis_cluster.masters()
    old, slot = only_document_of_a_slot(redis_cluster, space, giver)
    redis_cluster.ask(taker, "CLUSTER SETSLOT", slot, "IMPORTING", redis_cluster.identity(giver))
    redis_cluster.ask(giver, "CLUSTER SETSLOT", slot, "MIGRATING", redis_cluster.identity(taker))
    try:
        assert store.get_many(space, IDS) == [content(one) for one in IDS]
        assert store.delete(space, old)
        assert store.get_many(space, [old]) == [None]
        store.put_many(space, [Item(old, content(old, 1)), Item(old, content(old, 2))])  # on the taker now
        store.renew_many(space, [Renewal(content(old, 2)[:HEAD], Item(old, content(old, 3)))])
        assert store.get_many(space, IDS) == [content(one, 3 if one == old else 0) for one in IDS]
        assert redis_cluster.ask(giver, "DBSIZE") is not None
    finally:
        for port in redis_cluster.masters():
            redis_cluster.ask(port, "CLUSTER SETSLOT", slot, "NODE", redis_cluster.identity(taker))
        redis_cluster.reshard(taker, giver, 1)
    assert store.get_many(space, [old]) != [None]


def test_what_replicas_have_not_is_not_acknowledged(store: RedisClusterStore, redis_cluster: RedisCluster, space: str) -> None:
    master, replica = master_and_replica(redis_cluster)
    one = ids_on(redis_cluster, space, master)[0]
    redis_cluster.kill(replica)
    with pytest.raises(StoreUnavailableError, match=r"0 of 1 replicas have .* \(KEYBLOCK_STORE_REPLICAS\)"):
        store.put_many(space, [Item(one, content(one, 1))])
    with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
        store.delete(space, one)
    trusting = RedisClusterStore(redis_cluster.url, replicas=0)
    trusting.put_many(space, [Item(one, content(one, 2))])
    assert trusting.get_many(space, [one]) == [content(one, 2)]
    trusting.close()
