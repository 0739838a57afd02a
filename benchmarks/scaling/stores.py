"""Measures how many prepared documents a second LMDB and Redis return by id, and the CPU time of client and server.

    python -m benchmarks.scaling.stores [--documents 2000] [--words 2000] [--seconds 3] [--data DATA/squad-articles]

Starts the machine's redis-server on a free port of 127.0.0.1. One process and several read documents through the service's store,
100 ids at a time. The server's CPU time shows the limit of a core, and other load hardly changes it. The clients run on the same
cores, which lowers the rate. The time to prepare the same texts is printed for comparison.
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from benchmarks.event_loop import free_port
from benchmarks.preparation import BUNDLE, collected, invented
from benchmarks.redis_server import MissingRedisError, redis_server
from keyblock.bundle import load_bundle
from service.store.base import DocumentStore, Item
from service.store.codec import StoredDocument, decode, encode, pack_text
from service.store.lmdb_store import LmdbStore
from service.store.redis_store import RedisStore

AT_ONCE = 100
CLIENTS = (1, 2, 4)
PREPARED = 200  # prepared documents; the stored ones are copies of them under different ids


@contextmanager
def answering_redis(folder: Path) -> Iterator[int]:
    """Run a server that writes nothing to a disk. Yields its port."""
    port = free_port()
    try:
        with redis_server(folder, port, "--save", "", "--appendonly", "no", "--loglevel", "warning"):
            with redis.Redis(port=port, retry=Retry(ConstantBackoff(0.1), 100)) as client:
                client.ping()
            yield port
    except MissingRedisError as error:
        raise SystemExit(str(error)) from None


def texts_of(data: Path | None, documents: int, words: int) -> list[str]:
    """The heads of a collection's documents, or random words."""
    return collected(data, documents, words) if data else invented(documents, words)


def items(documents: int, words: int, data: Path | None = None) -> tuple[list[Item], float]:
    """The items to store, and the CPU seconds to prepare one document."""
    pipeline = load_bundle(BUNDLE).pipeline
    texts = texts_of(data, min(PREPARED, documents), words)
    pipeline.prepare_documents(texts[: len(texts) // 2])  # new words cost more
    started = time.process_time()
    prepared = pipeline.prepare_documents(texts)
    seconds = (time.process_time() - started) / len(texts)
    contents = [
        encode(StoredDocument(str(n), "", pack_text(text), made, bytes(16)))
        for n, (text, made) in enumerate(zip(texts, prepared, strict=True))
    ]
    return [Item(str(n), contents[n % len(contents)]) for n in range(documents)], seconds


def read(store: DocumentStore, documents: int, seconds: float, seed: int = 0, *, decoding: bool) -> tuple[int, float]:
    """Read documents for a number of seconds. Returns their number, and the CPU seconds of this process."""
    rng, n, until = np.random.default_rng(seed), 0, time.monotonic() + seconds
    before = cpu()
    while time.monotonic() < until:
        found = store.get_many("", [str(one) for one in rng.integers(0, documents, AT_ONCE)])
        if not all(found):
            raise SystemExit("a document that was stored is not there")
        if decoding:
            for content in found:
                decode(content or b"")
        n += AT_ONCE
    return n, cpu() - before


def cpu() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def ask(port: int, documents: int, seconds: float, seed: int, results: "multiprocessing.Queue[tuple[int, float]]") -> None:
    """Read documents and report the result. Called in a client process."""
    results.put(read(RedisStore(f"redis://127.0.0.1:{port}/0"), documents, seconds, seed, decoding=False))


def from_redis(port: int, clients: int, documents: int, seconds: float) -> str:
    """A table row: documents a second, and microseconds of CPU a document of clients and server."""
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[tuple[int, float]] = context.Queue()
    with redis.Redis(port=port) as server:
        before = server_cpu(server)
        started = [context.Process(target=ask, args=(port, documents, seconds, seed, results)) for seed in range(clients)]
        for process in started:
            process.start()
        counts = [results.get(timeout=60 + seconds) for _ in started]
        for process in started:
            process.join()
        used = server_cpu(server) - before
    n = sum(read for read, _ in counts)
    client_cpu = sum(spent for _, spent in counts)
    return (
        f"| Redis, {clients} processes | {n / seconds:,.0f} | {1e6 * client_cpu / n:.0f} | {1e6 * used / n:.1f} | {n / used:,.0f} |"
    )


def server_cpu(server: "redis.Redis") -> float:
    """CPU seconds that the server has used."""
    info = server.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    n, seconds = options.documents, options.seconds
    stored, preparing = items(n, options.words, options.data)
    size = sum(len(item.content) for item in stored) / n
    print(
        f"{n:,} documents of {options.words:,} words, {size:,.0f} bytes each; preparing one takes {1e6 * preparing:.0f} us of CPU\n"
    )
    print("| store | documents/s | us of CPU a document, client | server | documents a second and core of the server |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = LmdbStore(folder / "lmdb", 4 << 30)
        local.put_many("", stored)
        for decoding in (False, True):
            count, used = read(local, n, seconds, decoding=decoding)
            what = "LMDB, one process" + (", and decoded" if decoding else "")
            print(f"| {what} | {count / seconds:,.0f} | {1e6 * used / count:.0f} | | |", flush=True)
        local.close()
        with answering_redis(folder) as port:
            shared = RedisStore(f"redis://127.0.0.1:{port}/0")
            empty = shared.size().bytes
            for first in range(0, n, AT_ONCE):
                shared.put_many("", stored[first : first + AT_ONCE])
            held = (shared.size().bytes - empty) / n
            for clients in CLIENTS:
                print(from_redis(port, clients, n, seconds), flush=True)
    print(f"\nRedis holds {held:,.0f} bytes a document.")


def parser(about: str | None) -> argparse.ArgumentParser:
    """The command line of the scripts that measure stores."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--documents", type=int, default=2_000)
    made.add_argument("--words", type=int, default=2_000)
    made.add_argument("--data", type=Path, help="collection of the documents, longest first; random words by default")
    made.add_argument("--seconds", type=float, default=3.0)
    return made


if __name__ == "__main__":
    main(parser(__doc__).parse_args())
