"""Measures a Redis Cluster of three masters with a replica each: the rate of a node, and the cost of outages.

    python -m benchmarks.scaling.nodes [--documents 2000] [--words 2000] [--seconds 3] [--data DATA/squad-articles]

Starts six of the machine's redis-servers, and reads documents through the service's store, 100 ids at a time. The same is measured
with a single server. All processes share the machine, so use the CPU time for sizing, not the rates. Then, under readers and a
writer, four things happen: a master is killed, a master hangs, slots are moved, and a master and its replica are killed. After each
the script checks that every acknowledged document is stored.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from benchmarks.redis_cluster import RedisCluster, until
from benchmarks.redis_server import MissingRedisError
from benchmarks.scaling.stores import AT_ONCE, answering_redis, cpu, items, parser, read, server_cpu
from service.store.base import AWAY, DocumentStore, Item, StoreUnavailableError
from service.store.cluster_map import Server
from service.store.redis_client import key_of
from service.store.redis_cluster import PREFIX, RedisClusterStore
from service.store.redis_store import RedisStore

WRITTEN = 20  # documents that the writer stores at once
SLOTS = 400
FEW, TURNS = 18, 500  # documents of a request, and number of requests, to measure the cost of one more server


def spent(ports: list[int]) -> float:
    """CPU seconds that the servers have used."""
    total = 0.0
    for port in ports:
        with redis.Redis(port=port) as server:
            total += server_cpu(server)
    return total


def rates(name: str, store: DocumentStore, masters: list[int], replicas: list[int], stored: list[Item], seconds: float) -> str:
    """A table row: documents read a second, and microseconds of CPU a document of client and servers; the same for writes."""
    before, n, client_cpu = spent(masters + replicas), len(stored), cpu()
    started = time.monotonic()
    for first in range(0, n, AT_ONCE):
        store.put_many("", stored[first : first + AT_ONCE])
    took, used, client_cpu = time.monotonic() - started, spent(masters + replicas) - before, cpu() - client_cpu
    put = f"{n / took:,.0f} | {1e6 * client_cpu / n:.0f} | {1e6 * used / n:.1f}"
    before = spent(masters)
    count, client_cpu = read(store, n, seconds, decoding=False)
    used = spent(masters) - before
    got = f"{count / seconds:,.0f} | {1e6 * client_cpu / count:.0f} | {1e6 * used / count:.1f} | {count / used:,.0f}"
    return f"| {name} | {got} | {put} |"


def further_server(store: RedisClusterStore, documents: int) -> float:
    """Microseconds of the client's CPU that each server after the first adds to a request."""
    owners: dict[Server | None, list[str]] = {}
    for number in range(documents):
        owners.setdefault(store._map.owner(key_of(PREFIX, "", str(number))), []).append(str(number))
    parts = list(owners.values())
    seconds = []
    for batch in (parts[0][:FEW], [one for part in parts for one in part[: FEW // len(parts)]]):
        before = cpu()
        for _ in range(TURNS):
            store.get_many("", batch)
        seconds.append((cpu() - before) / TURNS)
    return 1e6 * (seconds[1] - seconds[0]) / (len(parts) - 1)


@dataclass
class Watched:
    """Readers and a writer on a store, with counts of their results.

    Attributes:
        acknowledged: the last acknowledged document under each of the writer's ids.
        tried: the last acknowledged document, and later ones without an answer.
        requested: documents that were read.
        away: documents that were not available, and `times` of these reads.
        missing: documents that the store did not find although they are stored.
        puts: acknowledged writes.
        refused: refused writes.
        longest: seconds of the longest read.
    """

    store: RedisClusterStore
    stored: list[Item]
    acknowledged: dict[str, Item] = field(default_factory=dict)
    tried: dict[str, list[Item]] = field(default_factory=dict)
    requested: int = 0
    away: int = 0
    missing: int = 0
    refused: int = 0
    puts: int = 0
    times: list[float] = field(default_factory=list)
    longest: float = 0.0
    stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Run the readers and the writer until the block ends."""
        threads = [threading.Thread(target=work) for work in (self._read, self._read, self._write)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in threads:
                thread.join()

    def lost(self) -> int:
        """Number of ids whose stored document is neither the last acknowledged one nor a later one."""
        ids = list(self.acknowledged)
        found = self.store.get_many("w", ids)
        return sum(content not in [one.content for one in self.tried[name]] for name, content in zip(ids, found, strict=True))

    def _read(self) -> None:
        ids = [str(number) for number in range(AT_ONCE)]
        while not self.stopped.is_set():
            started = time.monotonic()
            found = self.store.get_many("", ids)
            self.longest = max(self.longest, time.monotonic() - started)
            self.requested += len(found)
            self.missing += found.count(None)
            if away := found.count(AWAY):
                self.away += away
                self.times += [started, time.monotonic()]

    def _write(self) -> None:
        turn = 0
        while not self.stopped.is_set():
            turn += 1
            part = [
                Item(str(n), b"%33d" % turn + self.stored[n].content) for n in range(turn % 5 * WRITTEN, (turn % 5 + 1) * WRITTEN)
            ]
            for one in part:
                self.tried.setdefault(one.id, []).append(one)
            try:
                self.store.put_many("w", part)
            except StoreUnavailableError:
                self.refused += 1
                continue
            self.puts += 1
            for one in part:
                self.acknowledged[one.id] = one
                self.tried[one.id] = [one]


def outage_row(
    name: str, store: RedisClusterStore, stored: list[Item], happens: Callable[[], None], mended: Callable[[], None]
) -> str:
    """A table row: the cost of an event until it is repaired."""
    watched = Watched(store, stored)
    with watched.under_way():
        until(lambda: len(watched.acknowledged) == 5 * WRITTEN)
        happens()
        mended()
        before = dict(watched.acknowledged)
        until(lambda: all(watched.acknowledged[one] is not before[one] for one in before))
    seconds = max(watched.times) - min(watched.times) if watched.times else 0.0
    return (
        f"| {name} | {seconds:.1f} | {watched.away / watched.requested:.0%} | {watched.missing} | {1e3 * watched.longest:,.0f} "
        f"| {watched.refused} | {watched.puts} | {watched.lost()} |"
    )


def outages(cluster: RedisCluster, store: RedisClusterStore, stored: list[Item]) -> Iterator[str]:
    """A table row for each event."""

    def promoted() -> None:
        until(lambda: len(cluster.masters()) == masters)
        until(lambda: AWAY not in store.get_many("", [str(n) for n in range(AT_ONCE)]))
        cluster.mend()

    def answering() -> None:
        time.sleep(2.0)
        cluster.mend()
        until(lambda: AWAY not in store.get_many("", [str(n) for n in range(AT_ONCE)]))

    def down() -> None:
        for port in (replica, master):
            cluster.kill(port)

    masters = len(cluster.masters())
    (master, (replica,)), *_ = cluster.masters().items()
    yield outage_row("a master is killed", store, stored, lambda: cluster.kill(master), promoted)
    (master, (replica,)), *_ = cluster.masters().items()
    yield outage_row("a master hangs", store, stored, lambda: cluster.pause(master), promoted)
    (master, (replica,)), (other, _), *_ = cluster.masters().items()
    yield outage_row(f"{SLOTS} slots move", store, stored, lambda: cluster.reshard(master, other, SLOTS), lambda: None)
    yield outage_row("a master and its replica are killed, for 2 s", store, stored, down, answering)


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    stored, _ = items(options.documents, options.words, options.data)
    size = sum(len(item.content) for item in stored) / len(stored)
    print(f"{len(stored):,} documents of {options.words:,} words, {size:,.0f} bytes each\n")
    print("| store | read/s | us of CPU a document, client | servers | read a second and core | stored/s | us, client | servers |")
    print("|" + " --- |" * 8)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        with answering_redis(Path(name)) as port:
            one = RedisStore(f"redis://127.0.0.1:{port}/0")
            print(rates("one server", one, [port], [], stored, options.seconds), flush=True)
            one.close()
        cluster = RedisCluster(Path(name))
        try:
            cluster.create()
            masters = list(cluster.masters())
            followers = [port for port in cluster.ports if port not in masters]
            for replicas in (0, 1):
                store = RedisClusterStore(cluster.url, replicas)
                empty = store.size()
                print(rates(f"cluster, WAIT {replicas}", store, masters, followers, stored, options.seconds), flush=True)
                if not replicas:
                    held = (store.size().bytes - empty.bytes) / len(stored)
                    store.close()
            print(f"\nEach further server costs a request {further_server(store, len(stored)):.0f} us of the client's CPU.")
            print(f"A master holds {held:,.0f} bytes a document, and each of its replicas as many.\n")
            print("| what happens | s away | of asked | missing | longest read, ms | puts refused | acknowledged | lost |")
            print("|" + " --- |" * 8)
            for row in outages(cluster, store, stored):
                print(row, flush=True)
            store.close()
        finally:
            cluster.close()


if __name__ == "__main__":
    try:
        main(parser(__doc__).parse_args())
    except MissingRedisError as error:
        raise SystemExit(str(error)) from None
