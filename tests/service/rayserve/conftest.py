"""A Ray cluster of this machine, for all tests of this directory: to start one takes most of their time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from keyblock.bundle import load_bundle
from service.settings import DEFAULT_BUNDLE
from tests.support.ports import free_port
from tests.support.rays import need_ray

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # a proxy that starts on a busy machine is not to be killed for it
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}
REQUEST = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
EXACT = {"provider": "cpu", "precision": "fp32", "threads": 1, "score_cache_bytes": 0}


class Cluster:
    """The application on Ray Serve, in processes of its own."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process, self._log = process, log
        self._bundle: Path | None = None

    def order(self, line: str) -> str:
        """The output of the driver once it is done."""
        stdin, stdout = self._pipes()
        stdin.write(line + "\n")
        stdin.flush()
        return stdout.readline().strip()

    def deploy(self, bundle: Path) -> None:
        """Until it answers; the one that is deployed already stays."""
        if bundle != self._bundle:
            order = json.dumps(EXACT | {"bundle": str(bundle)})
            assert self.order(f"deploy {order}") == "deployed", self._log.read_text(encoding="utf-8")[-2000:]
            self._bundle = bundle

    def end(self) -> None:
        self._pipes()[0].close()
        self._process.wait(60)

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Serves no bundle at first."""
    need_ray()
    port = free_port()
    log = tmp_path_factory.mktemp("ray") / "driver.log"
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ENVIRONMENT
    command = [sys.executable, str(Path(__file__).with_name("driver.py")), str(port)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with log.open("w") as written, subprocess.Popen(command, cwd=ROOT, env=environment, stderr=written, **pipes) as process:
        made = Cluster(process, port, log)
        try:
            yield made
            made.end()
        finally:
            process.kill()


def answers(http: httpx.Client, model: str) -> None:
    """Wait until this model does, again and again: a replica that another takes the place of may be asked for a moment."""
    in_turn = 0
    while in_turn < 10:
        answer = http.post("/rerank", json=REQUEST)
        in_turn = in_turn + 1 if answer.is_success and answer.json()["model"] == model else 0


@pytest.fixture
def http(cluster: Cluster) -> Iterator[httpx.Client]:
    """Of the embedded bundle, whichever a test before has deployed."""
    cluster.deploy(DEFAULT_BUNDLE)
    with httpx.Client(base_url=cluster.url, timeout=60) as client:
        answers(client, load_bundle(DEFAULT_BUNDLE).manifest.name)
        yield client
