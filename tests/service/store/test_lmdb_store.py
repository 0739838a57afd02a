"""The embedded store: full, killed, read-only, out of disk."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.base import Item, StoreFullError, StoreUnavailableError
from service.store.lmdb_store import LmdbStore
from tests.service.faults import wait_for

CAPACITY = 1 << 20


def items(first: int, n: int, size: int = 20_000) -> list[Item]:
    return [Item(f"d{number}", (f"{number} ".encode() * size)[:size]) for number in range(first, first + n)]


def present(store: LmdbStore, first: int, n: int) -> list[int]:
    found = store.get_many("", [f"d{number}" for number in range(first, first + n)])
    return [first + number for number, content in enumerate(found) if content is not None]


@pytest.fixture
def store(directory: Path) -> Iterator[LmdbStore]:
    store = LmdbStore(directory, CAPACITY)
    yield store
    store.close()


def test_a_full_store_refuses_all_of_a_batch_and_keeps_what_it_has(store: LmdbStore) -> None:
    store.put_many("", items(0, 20))
    with pytest.raises(StoreFullError, match="its documents may take 1048576 bytes; delete some, raise KEYBLOCK_STORE_BYTES"):
        store.put_many("", items(20, 60))
    assert present(store, 0, 80) == list(range(20))
    assert store.size().bytes <= CAPACITY
    for number in range(20):
        assert store.delete("", f"d{number}")
    store.put_many("", items(20, 20))
    assert present(store, 0, 80) == list(range(20, 40))


def test_the_least_recently_used_are_forgotten(directory: Path) -> None:
    store = LmdbStore(directory, CAPACITY, evict=True)
    store.put_many("", items(0, 40))
    assert present(store, 0, 10) == list(range(10))  # used again, in this order
    store.put_many("", items(40, 25))
    kept = store.get_many("", [f"d{number}" for number in range(65)])
    there = [number for number, content in enumerate(kept) if content is not None]
    assert set(range(10)) <= set(there)
    assert there == [*range(10), *range(there[10], 65)]
    assert store.size().bytes <= CAPACITY
    assert store.size().evicted == 65 - len(there) > 0
    store.close()


def test_many_times_its_size_may_pass_through(directory: Path) -> None:
    """The file stays as large as the cap and the slack allow, whatever the sizes: free room in pieces is no end."""
    store = LmdbStore(directory, 4 * CAPACITY, evict=True)
    for turn in range(40):
        size = (1000, 4000, 60_000, 200_000)[turn % 4]
        store.put_many("", items(1000 * turn, 2_000_000 // size, size))
        assert present(store, 1000 * turn + 2_000_000 // size - 1, 1)
        assert store.size().bytes <= 4 * CAPACITY
    store.close()
    assert (directory / "data.mdb").stat().st_size <= 5 * CAPACITY + (64 << 20)


def test_what_has_expired_makes_room(store: LmdbStore) -> None:
    soon = int(time.time() * 1000) + 50
    store.put_many("", [item._replace(expires=soon) for item in items(0, 40)])
    wait_for(lambda: time.time() * 1000 > soon + 1)
    store.put_many("", items(40, 40))
    assert store.size().documents == 40


def test_a_second_process_is_refused_and_a_smaller_cap_is_kept_to(directory: Path) -> None:
    store = LmdbStore(directory, CAPACITY)
    store.put_many("", items(0, 40))
    with pytest.raises(StoreUnavailableError, match="another process uses this store; give each replica a directory of its own"):
        LmdbStore(directory, CAPACITY)
    store.close()
    smaller = LmdbStore(directory, CAPACITY // 2, evict=True)
    smaller.put_many("", items(40, 1))
    assert smaller.size().bytes <= CAPACITY // 2
    assert present(smaller, 40, 1) == [40]
    smaller.close()


def test_what_is_no_store_is_one_line(directory: Path) -> None:
    directory.mkdir()
    (directory / "data.mdb").write_bytes(b"no store" * 10_000)
    for _ in range(2):  # the lock is given back
        with pytest.raises(StoreUnavailableError, match=r"cannot be used as a store .*not an LMDB file"):
            LmdbStore(directory, CAPACITY)
    with pytest.raises(StoreUnavailableError, match="cannot be used as a store"):
        LmdbStore(directory / "data.mdb", CAPACITY)


WHOLE = 50  # documents of a store that is then damaged
USE = f"""
import sys
from pathlib import Path
from service.store.base import Item, StoreError
from service.store.lmdb_store import LmdbStore
try:
    store = LmdbStore(Path(sys.argv[1]), 16 << 20)
    names = [str(n) for n in range({WHOLE})]
    store.sizes("n", names), store.get_many("n", names), store.size()
    store.put_many("n", [Item("new", bytes(5000))])
    print("used")
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_is_one_line_and_no_crash(directory: Path, kept: float) -> None:
    """LMDB maps the file: a page beyond its end would be a SIGBUS."""
    store = LmdbStore(directory, 16 << 20)
    for n in range(WHOLE):
        store.put_many("n", [Item(str(n), os.urandom(5000))])
    store.close()
    file = directory / "data.mdb"
    os.truncate(file, int(file.stat().st_size * kept))
    done = subprocess.run([sys.executable, "-c", USE, str(directory)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert "cannot be used as a store" in done.stdout or done.stdout == "used\n"
    assert "documents that stood in the rest are damaged" in done.stderr


def test_another_format_is_an_error(directory: Path) -> None:
    store = LmdbStore(directory, CAPACITY)
    with store._environment.begin(write=True) as txn:
        txn.put(b"format", b"7", db=store._tables.about)
    store.close()
    with pytest.raises(StoreUnavailableError, match="written in format 7, and this version reads 1; update KeyBlock"):
        LmdbStore(directory, CAPACITY)


WRITER = """
import sys
from pathlib import Path
from service.store.base import Item
from service.store.lmdb_store import LmdbStore

directory, first = Path(sys.argv[1]), int(sys.argv[2])
store = LmdbStore(directory, 256 << 20)
for start in range(first, first + 100_000, 7):
    store.put_many("", [Item(f"d{n}", f"{n} ".encode() * (100 + n % 3000)) for n in range(start, start + 7)])
    print(start + 7, flush=True)
"""


def test_nothing_acknowledged_is_lost_by_a_kill(directory: Path) -> None:
    acknowledged = 0
    for turn in range(3):
        command = [sys.executable, "-c", WRITER, str(directory), str(acknowledged)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(3 + 5 * turn):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split(b"\n")
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        store = LmdbStore(directory, 256 << 20)
        for number, content in enumerate(store.get_many("", [f"d{n}" for n in range(acknowledged)])):
            assert content == f"{number} ".encode() * (100 + number % 3000)
        acknowledged = store.size().documents  # a last batch may be there that nobody was told of
        assert acknowledged % 7 == 0
        store.close()
