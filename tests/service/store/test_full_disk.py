"""The embedded store on a disk without room, which is a small tmpfs in a mount namespace of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

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
