"""The rerankers that KeyBlock is compared with. Each has its own environment under build/, installed and called as users do."""

import json
import os
import shutil
import subprocess
import time
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.support.ports import free_port
from tests.support.serving import REQUEST_SECONDS, Answer, last_line
from tests.support.texts import Request

WORKER = Path(__file__).with_name("peer_worker.py")
START_SECONDS = 300
TORCH = "torch==2.13.0"  # on PyPI this is a build for CPUs; without a version pip downloads gigabytes for GPUs
LISTED = ("infinity_emb", "sentence-transformers", "transformers", "torch", "onnxruntime", "openvino", "optimum-intel", "FlashRank")
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
ONNX = Environment("onnx", ("sentence-transformers[onnx]==5.7.0", "flashrank==0.2.10", TORCH))  # optimum-onnx wants transformers 4


@dataclass(frozen=True)
class Peer:
    """A reranker in one set-up.

    Attributes:
        key: short name.
        name: name in the tables.
        environment: the environment that it runs in.
        precision: precision of its arithmetic.
        default: whether this is the set-up that users get by default.
        kind: kind of worker (see peer_worker.py); None: infinity's own server.
    """

    key: str
    name: str
    environment: Environment
    precision: str
    default: bool = False
    kind: str | None = None


PEERS = (
    Peer("infinity", "infinity-emb, its server", INFINITY, "fp32", default=True),
    Peer("torch", "CrossEncoder", LATEST, "fp32", default=True, kind="cross-encoder"),
    Peer("torch-bf16", "CrossEncoder, bf16", LATEST, "bf16", kind="cross-encoder-bf16"),
    Peer("onnx", "CrossEncoder, ONNX", ONNX, "fp32", kind="cross-encoder-onnx"),
    Peer("openvino", "CrossEncoder, OpenVINO f32", LATEST, "fp32", kind="cross-encoder-openvino-f32"),
    Peer("openvino-bf16", "CrossEncoder, OpenVINO bf16", LATEST, "bf16", kind="cross-encoder-openvino-bf16"),
    Peer("flashrank", "FlashRank, int8", ONNX, "int8", kind="flashrank"),
)


class Running(Protocol):
    """A running peer."""

    def rank(self, request: Request) -> Answer:
        """Score the documents. Raises PeerError."""

    def stop(self) -> None:
        """Stop the peer's process."""


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
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerError(f"no virtual environment can be made for it ({error})") from None
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run_pip([*pip, "install", *environment.packages])
    if environment.without:
        run_pip([*pip, "uninstall", "--yes", *environment.without])
    made.write_text(wanted, encoding="utf-8")
    return python


def run_pip(command: list[str]) -> None:
    """Run pip. Raises PeerError with its last error line."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        errors = (
            [line for line in ended.stderr.splitlines() if line.startswith("ERROR")] or ended.stderr.splitlines() or ["nothing"]
        )
        raise PeerError(f"pip ended with {ended.returncode}: {errors[-1][:300]}")


def versions(python: Path) -> dict[str, str]:
    """The versions in an environment of the packages that affect speed."""
    listed = subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=False).stdout
    found = {package["name"]: package["version"] for package in json.loads(listed or "[]")}
    return {name: found[name] for name in LISTED if name in found}


def threads_environment(threads: int) -> dict[str, str]:
    """Environment variables that limit every library to `threads` threads, offline and silent."""
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    return inherited | counts | QUIET


def start(peer: Peer, model: Path, home: Path, threads: int) -> Running:
    """Start a peer on the model in this directory; install it if necessary. Raises PeerError."""
    python = python_of(peer.environment, home)
    log = home / f"{peer.key}.log"
    return Server(python, model, threads, log) if peer.kind is None else Worker(python, peer.kind, model, threads, log)


class Worker:
    """A peer in its own process, called through JSON lines. Only the call is timed."""

    def __init__(self, python: Path, kind: str, model: Path, threads: int, log: Path) -> None:
        self._log = log
        command = [str(python), str(WORKER), kind, str(model), str(threads)]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=threads_environment(threads)
            )
        try:
            self._read()
        except BaseException:
            self.stop()
            raise

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise PeerError(f"it ended: {last_line(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, request: Request) -> dict[str, Any]:
        if self._process.stdin is None or self._process.poll() is not None:
            raise PeerError(f"it ended: {last_line(self._log)}")
        try:
            self._process.stdin.write(json.dumps({"query": request.query, "documents": request.documents}) + "\n")
            self._process.stdin.flush()
        except OSError:  # the process ended during the request
            self._process.wait()
        return self._read()

    def rank(self, request: Request) -> Answer:
        """See Running."""
        answer = self._ask(request)
        return Answer(answer["seconds"], answer["scores"])

    def stop(self) -> None:
        """See Running."""
        self._process.kill()
        self._process.communicate()


class Server:
    """infinity-emb's own HTTP server."""

    def __init__(self, python: Path, model: Path, threads: int, log: Path, port: int = 0) -> None:
        self._log, port = log, port or free_port()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(part) for part in self.command(python, model, port)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=threads_environment(threads),
            )
        self.url = f"http://127.0.0.1:{port}"
        self._client = httpx.Client(base_url=self.url, timeout=REQUEST_SECONDS)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def command(self, python: Path, model: Path, port: int) -> list[object]:
        """The command that starts the server."""
        return [python.with_name("infinity_emb"), "v2", "--model-id", model, "--host", "127.0.0.1", "--port", port]

    def body(self, request: Request) -> dict[str, Any]:
        """The body of a request."""
        return {"query": request.query, "documents": request.documents}

    def scores(self, answer: Any) -> list[float]:
        """The scores in an answer, in the order of the documents."""
        results: list[Mapping[str, Any]] = sorted(answer["results"], key=lambda result: result["index"])
        return [result["relevance_score"] for result in results]

    def _wait(self) -> None:
        until = time.perf_counter() + START_SECONDS
        while time.perf_counter() < until:
            if self.process.poll() is not None:
                raise PeerError(f"its server ended with {self.process.returncode}: {last_line(self._log)}")
            try:
                if self._client.get("/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise PeerError(f"its server was not ready after {START_SECONDS} s: {last_line(self._log)}")

    def rank(self, request: Request) -> Answer:
        """See Running."""
        body = json.dumps(self.body(request)).encode()
        headers = {"content-type": "application/json"}
        started = time.perf_counter()
        try:
            response = self._client.post("/rerank", content=body, headers=headers)
        except httpx.TransportError as error:
            raise PeerError(f"its server does not answer ({error})") from None
        seconds = time.perf_counter() - started
        if response.status_code != 200:
            raise PeerError(f"its server answered {response.status_code}: {response.text[:300]}")
        return Answer(seconds, self.scores(response.json()))

    def stop(self) -> None:
        """See Running."""
        self._client.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
