"""keyblock-serve with several processes: a real supervisor, and what it has started."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.options import flag
from tests.service.faults import PATIENCE, wait_for
from tests.service.keyed import ALL, bearing
from tests.support.ports import free_port
from tests.support.processes import children_of, command_of

EXACT = {"provider": "cpu", "precision": "fp32", "threads": 1, "processes": 2, "score_cache_bytes": 0}
START_SECONDS = 90.0  # that three processes are given on a machine with other work, until a test gives up


def eventually(holds: Callable[[], bool]) -> None:
    wait_for(holds, START_SECONDS, pause=0.02)


class Served:
    """A service of two fronts.

    Args:
        process: the supervisor.
        url: where it is asked.
        folder: for what it and its processes write.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, folder: Path) -> None:
        self.process, self.url, self.folder = process, url, folder
        self._http = httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=PATIENCE)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    @property
    def n_begun(self) -> int:
        """Fronts that have ever begun to listen: until one does, the other one gets all connections."""
        return self.log.count("Uvicorn running")

    def children(self, work: str = "") -> list[int]:
        """Ids of the processes that it has started, for this work."""
        return [child for child in children_of(self.process.pid) if work in command_of(child)]

    def ask(self, method: str, path: str, key: str = "alice", **more: Any) -> httpx.Response:
        """Over a connection of its own, which either front may get."""
        return self._http.request(method, path, headers=bearing(key), **more)

    def rerank(self, body: Any) -> httpx.Response:
        return self.ask("POST", "/rerank", json=body)

    def health(self, path: str = "/health/ready") -> int:
        try:
            return self.ask("GET", path).status_code
        except httpx.TransportError:
            return 0

    def steadily(self, status: int, path: str = "/health/ready") -> bool:
        """Whether both fronts say so: of 12 connections one is hardly ever spared."""
        return all(self.health(path) == status for _ in range(12))

    def close(self) -> None:
        self._http.close()

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: pid not in self.children())


@contextmanager
def serving(folder: Path, bundles: Sequence[Path], **settings: Any) -> Iterator[Served]:
    """A service that is ready."""
    port = free_port()
    keys = folder / "keys"
    keys.write_text("\n".join(new.entry for new in ALL.values()), encoding="utf-8")
    given = EXACT | {"port": port, "api_keys_file": keys} | settings
    flags = [part for name, value in given.items() for part in (flag(name), str(value))]
    command = [sys.executable, "-m", "service.cli", *flags, *(part for path in bundles for part in ("--bundle", str(path)))]
    with (folder / "log").open("wb") as written, subprocess.Popen(command, stdout=written, stderr=written) as process:
        served = Served(process, f"http://127.0.0.1:{port}", folder)
        try:
            eventually(lambda: process.poll() is not None or (served.n_begun == 2 and served.steadily(200)))
            assert process.poll() is None, served.log
            yield served
        finally:
            served.close()
            process.kill()


@pytest.fixture
def readme() -> Any:
    return json.loads((Path(__file__).parents[3] / "examples" / "request.json").read_text(encoding="utf-8"))
