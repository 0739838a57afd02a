"""Faults of the store of documents by id."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import httpx

from benchmarks.faults.drill import Drill, SkipError, drill, must, until
from tests.support.ports import free_port
from tests.support.redis_server import redis_server
from tests.support.serving import COMMAND, ServiceError

MIB = 2**20
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")  # what Redis needs to keep what it has accepted


def lines(names: list[str], words: int = 400) -> bytes:
    """A body of PUT /documents."""
    return b"".join(
        json.dumps({"id": name, "text": f"River {name} has a bridge. " * (words // 5)}).encode() + b"\n" for name in names
    )


def by_id(names: list[str], *, strict: bool = True) -> dict[str, object]:
    """A request for documents by id."""
    return {"query": "river bridge", "documents": [{"id": name} for name in names], "strict": strict}


def all_there(it: Drill, names: list[str]) -> bool:
    """Whether each of these documents can be had; one of them is ranked too."""
    ranked = not names or it.post(by_id(names[:1])).status_code == 200
    return ranked and all(it.client.get(f"/documents/{name}").status_code == 200 for name in names)


def directory_full(folder: Path) -> str:
    """A client stores more documents than the store may hold."""
    with drill(folder, store=folder / "store", store_bytes=2 * MIB) as it, it.asking() as tally:
        stored: list[str] = []
        for batch in range(10_000):
            names = [f"{batch}-{n}" for n in range(20)]
            response = it.client.put("/documents", content=lines(names))
            if response.status_code != 200:
                break
            stored += names
        must(response.status_code == 507, f"PUT was answered {response.status_code}")
        must(all_there(it, stored), "what was stored is not there")
        must(it.client.delete(f"/documents/{stored[0]}").status_code == 200, "nothing can be deleted")
        for name in stored[1:40]:
            it.client.delete(f"/documents/{name}")
        must(it.client.put("/documents", content=lines(["new"])).status_code == 200, "there is no room after deleting")
    return (
        f"507 after {len(stored):,} documents, all of which are there; there is room again after deleting 40; "
        f"other clients: {tally.check()}"
    )


def directory_read_only(folder: Path) -> str:
    """The directory of the store cannot be written."""
    place = folder / "read-only" / "store"
    place.parent.mkdir()
    place.parent.chmod(0o555)
    if os.geteuid() == 0:  # who may write everywhere but where the kernel itself does not let anyone
        place = Path("/sys/store")
    environment = {**os.environ, "KEYBLOCK_STORE": str(place), "KEYBLOCK_PORT": str(free_port())}
    ended = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, timeout=120, check=False)
    errors = ended.stderr.strip().splitlines()
    must(ended.returncode == 2 and len(errors) == 1, f"exit code {ended.returncode}: {errors[-1:]}")
    return f"the service does not start: exit code 2 and one line, `{errors[0].replace(str(place), 'DIRECTORY')}`"


def disk_full(folder: Path) -> str:
    """The disk is full (imitated by a limit on the size of files, which stops LMDB as a full disk does)."""
    import resource

    with drill(folder, store=folder / "store") as it, it.asking() as tally:
        must(it.client.put("/documents", content=lines(["a", "b"])).status_code == 200, "nothing can be stored")
        pid = it.service.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (200_000, before[1]))
        status = it.client.put("/documents", content=lines([str(n) for n in range(500)])).status_code
        kept = it.post(by_id(["a", "b"])).status_code
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        again = it.client.put("/documents", content=lines([str(n) for n in range(500)])).status_code
    must((status, kept, again) == (507, 200, 200), f"PUT {status}, by id {kept}, PUT when there is room {again}")
    return f"PUT gets 507, and stored documents are ranked; PUT gets 200 once there is room; other clients: {tally.check()}"


def killed_while_writing(folder: Path) -> str:
    """The process is killed (SIGKILL) while it writes, three times."""
    store, stored = folder / "store", list[str]()
    for turn in range(4):
        with drill(folder, store=store) as it:
            must(all_there(it, stored), "a document that was acknowledged is lost")
            if turn == 3:
                break
            killer = threading.Timer(0.4 + 0.3 * turn, it.service.process.kill)
            killer.start()
            stored += _put_until_it_ends(it, turn)
            killer.join()
    return f"before the kills {len(stored):,} documents were acknowledged; all of them are there after each start"


def _put_until_it_ends(it: Drill, turn: int) -> list[str]:
    stored: list[str] = []
    for batch in range(1_000_000):
        names = [f"{turn}-{batch}-{n}" for n in range(10)]
        try:
            it.client.put("/documents", content=lines(names)).raise_for_status()
        except httpx.TransportError:
            break
        stored += names
    return stored


def redis_stopped(folder: Path) -> str:
    """Redis is killed and started again."""
    port = free_port()
    kept = folder / "redis"
    kept.mkdir()
    with redis_server(kept, port, *DURABLE) as redis:
        try:
            return _without_redis(folder, port, redis)
        except ServiceError as error:
            raise SkipError(str(error)) from None


def _without_redis(folder: Path, port: int, redis: "subprocess.Popen[bytes]") -> str:
    with drill(folder, store=f"redis://127.0.0.1:{port}/0") as it, it.asking() as tally:
        names = [str(n) for n in range(20)]
        until(lambda: it.client.put("/documents", content=lines(names)).status_code == 200, "documents can be stored")
        redis.kill()
        redis.wait()
        started = time.monotonic()
        away = it.post(by_id(names))
        waited = time.monotonic() - started
        must(away.status_code == 503 and away.headers.get("retry-after"), f"by id, it is away: {away.status_code}")
        must(it.health() == (200, 200), f"health is {it.health()}")
        with redis_server(folder / "redis", port, *DURABLE):
            back = until(lambda: it.post(by_id(names)).status_code == 200, "by id, it is back")
    return (
        f"while it is away, requests by id get 503 with Retry-After after {1000 * waited:.0f} ms, both probes stay green, and "
        f"requests with texts get {tally.check()}; "
        f"requests by id get 200 {back:.1f} s after its start"
    )
