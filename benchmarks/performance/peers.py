"""The rerankers that KeyBlock is compared with. Each has its own environment under build/, installed and called as users do."""

import json
import os
import shutil
import subprocess
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import in_order
from tests.support.ports import free_port
from tests.support.serving import REQUEST_SECONDS, Answer, last_line
from tests.support.texts import Request

WORKER = Path(__file__).with_name("peer_worker.py")
START_SECONDS = 300
TORCH = "torch==2.13.0"  # on PyPI this is a build for CPUs; without a version pip downloads gigabytes for GPUs
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "true"}


class PeerError(RuntimeError):
    """A peer cannot be installed, or started, or does not answer. The message is one line."""


@dataclass(frozen=True)
class Environment:
    """A peer's packages.

    Attributes:
        name: name of the folder in build/peers.
        packages: packages that pip installs.
        without: packages that pip then removes.
    """

    name: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()


# infinity's BetterTransformer needs a version of optimum that pip no longer chooses, and it made infinity slower here
INFINITY = Environment("infinity", ("infinity-emb[server,torch]==0.0.78", "transformers<5", TORCH))
# torchvision's wheels on PyPI do not fit a PyTorch for CPUs, and text needs no pictures
LATEST = Environment("sentence-transformers", ("sentence-transformers[openvino]==6.2.0", TORCH), without=("torchvision",))


@dataclass(frozen=True)
class Peer:
    """A reranker in one set-up.

    Attributes:
        key: short name.
        name: name in the tables.
        environment: the environment that it runs in.
        precision: precision of its arithmetic.
        default: whether this is the set-up that users get by default.
        backend: of the worker (see peer_worker.py); empty: infinity's own server.
    """

    key: str
    name: str
    environment: Environment
    precision: str
    default: bool = False
    backend: str = ""


PEERS = (
    Peer("infinity", "infinity-emb, its server", INFINITY, "fp32", default=True),
    Peer("torch", "CrossEncoder", LATEST, "fp32", default=True, backend="torch"),
    Peer("openvino", "CrossEncoder, OpenVINO bf16", LATEST, "bf16", backend="openvino"),  # the fastest of six set-ups: see speed.md
)


def python_of(environment: Environment, home: Path) -> Path:
    """The Python of a peer's environment, which is made if it is missing or has other packages. Raises PeerError."""
    folder, wanted = home / environment.name, json.dumps([environment.packages, environment.without])
    python, made = folder / "bin" / "python", folder / "made"
    if made.exists() and made.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing {' '.join(environment.packages)} into {folder} ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *environment.packages], capture_output=True, text=True, check=True)
        if environment.without:
            subprocess.run([*pip, "uninstall", "--yes", *environment.without], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines() or ["nothing"]
        raise PeerError(f"pip ended with {error.returncode}: {lines[-1][:300]}") from None
    except OSError as error:
        raise PeerError(f"no virtual environment can be made for it ({error})") from None
    made.write_text(wanted, encoding="utf-8")
    return python


class Running:
    """A peer that runs in a process of its own, offline and silent, with so many threads for every library.

    Args:
        peer: the reranker.
        model: a directory with its weights.
        home: where its environment and log go.
        threads: for each library.

    Attributes:
        url: of infinity's server; empty for a worker, which is called through JSON lines, and only the call is timed.

    Raises PeerError if it does not start.
    """

    def __init__(self, peer: Peer, model: Path, home: Path, threads: int) -> None:
        python, self._log = python_of(peer.environment, home), home / f"{peer.key}.log"
        port = free_port()
        self.url = "" if peer.backend else f"http://127.0.0.1:{port}"
        server = ("infinity_emb", "v2", "--model-id", str(model), "--host", "127.0.0.1", "--port", str(port))
        worker = (str(python), str(WORKER), str(model), str(threads), peer.backend)
        command = worker if peer.backend else (str(python.with_name(server[0])), *server[1:])
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
        with self._log.open("wb") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE if peer.backend else errors}
            self._process = subprocess.Popen(command, **pipes, stderr=errors, text=True, env=kept | counts | QUIET)
        self._client = httpx.Client(base_url=self.url, timeout=REQUEST_SECONDS)
        try:
            self._wait() if self.url else self._read()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        until = time.perf_counter() + START_SECONDS
        while time.perf_counter() < until and self._process.poll() is None:
            try:
                if self._client.get("/health").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.2)
        raise PeerError(f"its server was not ready after {START_SECONDS} s, or ended: {last_line(self._log)}")

    def _read(self) -> dict[str, Any]:
        if not (line := self._process.stdout.readline() if self._process.stdout else ""):
            raise PeerError(f"it ended: {last_line(self._log)}")
        return dict(json.loads(line))

    def rank(self, request: Request) -> Answer:
        """Score the documents. Raises PeerError."""
        body = json.dumps({"query": request.query, "documents": request.documents})
        try:
            if not self.url:
                print(body, file=self._process.stdin, flush=True)
                answer = self._read()
                return Answer(answer["seconds"], answer["scores"])
            started = time.perf_counter()
            response = self._client.post("/rerank", content=body, headers={"content-type": "application/json"})
            seconds = time.perf_counter() - started
        except (OSError, httpx.TransportError) as error:
            raise PeerError(f"it does not answer ({error}): {last_line(self._log)}") from None
        if response.status_code != 200:
            raise PeerError(f"its server answered {response.status_code}: {response.text[:300]}")
        return Answer(seconds, in_order(response.json()))

    def stop(self) -> None:
        """End the process."""
        self._client.close()
        self._process.kill()
        self._process.communicate()
