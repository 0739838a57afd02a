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
import itertools, sys
from pathlib import Path
from service.store.base import Item
from service.store.lmdb_store import LmdbStore
store = LmdbStore(Path(sys.argv[1]), 256 << 20)
for first in itertools.count(int(sys.argv[2]), 7):
    store.put_many("", [Item(f"d{n}", f"{n} ".encode() * (100 + n % 3000)) for n in range(first, first + 7)])
    print(first + 7, flush=True)
"""


def test_nothing_acknowledged_is_lost_by_a_kill_and_the_directory_is_free_again(directory: Path) -> None:
    there = 0
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(directory), str(there)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(5)]
            process.send_signal(signal.SIGKILL)
            acknowledged = int([*told, *process.stdout][-1])
        store = LmdbStore(directory, 256 << 20)
        there = store.size().documents  # a last batch may be there that nobody was told of
        assert there in (acknowledged, acknowledged + 7)
        assert store.get_many("", [f"d{n}" for n in range(there)]) == [f"{n} ".encode() * (100 + n % 3000) for n in range(there)]
        store.close()


MOUNT = 'mount -t tmpfs -o size=256k tmpfs "$1" && shift && exec "$@"'
START = """
import sys, threading
from pathlib import Path
from service.store.base import Item, StoreError
from service.store.lmdb_store import MOST_READERS, LmdbStore

disk, CAPACITY = Path(sys.argv[1]), 1 << 20

def fill(left=0):
    with (disk / "filled").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)): pass
        except OSError: pass
        file.truncate(file.tell() - left)

def message(work):
    try: work()
    except StoreError as error: return f"{type(error).__name__} {error}"

def open_store(): return LmdbStore(disk / "store", CAPACITY)
"""
NEW = """
for left in range(0, 64 << 10, 4096):
    fill(left)
    print(left, message(lambda: open_store().close()))
    (disk / "filled").unlink()
    open_store().close()  # what the failed start left behind does no harm
    for file in (disk / "store").iterdir(): file.unlink()
"""
LATER = """
store = open_store()
store.put_many("", [Item("kept", b"1" * 9000)])
fill()
print(message(lambda: store.put_many("", [Item("new", b"2" * 20_000)])))
barrier = threading.Barrier(MOST_READERS)
def read():
    with store._environment.begin():
        barrier.wait()
readers = [threading.Thread(target=read) for _ in range(MOST_READERS)]
for reader in readers: reader.start()
for reader in readers: reader.join()
store.close()
store = open_store()  # a start needs no room
print([content and len(content) for content in store.get_many("", ["kept", "new"])])
(disk / "filled").unlink()
store.put_many("", [Item("new", b"2" * 20_000)])
print(store.get_many("", ["new"]) == [b"2" * 20_000])
"""


def on_small_disk(disk: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that sees 256 KiB of tmpfs at this directory."""
    disk.mkdir()
    apart = ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(disk))
    try:
        can = subprocess.run([*apart, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"a small disk needs unshare: {error}")
    if can.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {can.stderr.strip()}")
    return subprocess.run([*apart, *command], capture_output=True, text=True, timeout=120, check=False)


def test_a_new_directory_on_a_full_disk_is_one_line_and_can_be_used_once_there_is_room(tmp_path: Path) -> None:
    """LMDB maps its files: without blocks of their own a start ended with SIGBUS or left half a file that none can open."""
    done = on_small_disk(tmp_path / "disk", sys.executable, "-c", START + NEW, str(tmp_path / "disk"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 16
    full = f"StoreFullError {tmp_path}/disk/store: the disk is full, or fails; make room on it"
    reasons = [line.split(" ", 1)[1] for line in lines]
    n_full = reasons.index("None")
    assert n_full >= 5
    assert reasons == [full] * n_full + ["None"] * (16 - n_full)


def test_a_disk_that_gets_full_refuses_reads_on_and_is_started_from(tmp_path: Path) -> None:
    done = on_small_disk(tmp_path / "disk", sys.executable, "-c", START + LATER, str(tmp_path / "disk"))
    assert (done.returncode, done.stderr) == (0, "")
    full = f"StoreFullError {tmp_path}/disk/store: the disk is full, or fails; make room on it"
    assert done.stdout.splitlines() == [full, "[9000, None]", "True"]
