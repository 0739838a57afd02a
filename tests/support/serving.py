"""Runs keyblock-serve in its own process and sends requests over HTTP."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

from tests.support.ports import free_port
from tests.support.texts import Request

COMMAND = Path(sys.executable).with_name("keyblock-serve")
START_SECONDS, REQUEST_SECONDS = 120, 600
POLL_SECONDS = 0.01
SANE_PLACES = 3  # the document with the query's words must be among this many best


class ServiceError(RuntimeError):
    """The service did not start, or its answer is unfit for a measurement. The message is one line."""


class Answer(NamedTuple):
    """A system's answer to a request.

    Attributes:
        seconds: time from sending to the answer; for a peer in its own process, the time of the call.
        scores: the documents' scores, in the order of the request.
        stages: seconds by stage; only the service reports them.
        tokens: tokens that the model read; 0 if the system does not report them.
    """

    seconds: float
    scores: list[float]
    stages: dict[str, float] = {}  # noqa: RUF012  # never changed
    tokens: int = 0


class Service:
    """A running keyblock-serve. It stops when the `with` block ends.

    Args:
        threads: threads for preparation and computation.
        log: file for the service's output.
        command: command that starts the service; keyblock-serve by default.
        port: port to listen on; by default a free one.
        patience: seconds until the service must be ready.
        settings: more settings, by their names in service/settings.py; the cache of scores is off unless they set it.

    Attributes:
        process: the service's process.

    Raises:
        ServiceError: the service ends, or is not ready in time.
    """

    def __init__(
        self,
        threads: int,
        log: Path,
        command: Sequence[str] = (str(COMMAND),),
        *,
        port: int = 0,
        patience: float = START_SECONDS,
        **settings: object,
    ) -> None:
        self.port = port or free_port()
        # measurements repeat requests, and must measure the model
        wanted = {"port": self.port, "threads": threads, "log_level": "warning", "score_cache_bytes": 0, **settings}
        variables = {f"KEYBLOCK_{name.upper()}": str(value) for name, value in wanted.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KEYBLOCK_")}
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        started = time.perf_counter()
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, env=inherited | variables, stdout=output, stderr=subprocess.STDOUT)
        self._client = httpx.Client(base_url=self.url, timeout=REQUEST_SECONDS)
        try:
            self._wait_ready(patience)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> int:
        """Terminate the process and wait for it. Returns the exit code."""
        self._client.close()
        self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill the process, as a failure of the machine would."""
        self._client.close()
        self.process.kill()
        self.process.wait()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def _wait_ready(self, patience: float) -> None:
        until = time.perf_counter() + patience
        while time.perf_counter() < until:
            if self.process.poll() is not None:
                raise ServiceError(f"keyblock-serve ended with {self.process.returncode}: {last_line(self._log)}")
            try:
                if self._client.get("/health/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(POLL_SECONDS)
        raise ServiceError(f"keyblock-serve was not ready after {patience:g} s: {last_line(self._log)}")

    def rank(self, request: Request, tokens: int | None = None, **options: object) -> Answer:
        """Send a request for the documents' scores. Its conversion to JSON is not timed. Raises ServiceError."""
        body = make_body(request, tokens, **options)
        started = time.perf_counter()
        try:
            response = self._client.post("/rerank", content=body)
        except httpx.TransportError as error:
            raise ServiceError(f"keyblock-serve does not answer ({error}): {last_line(self._log)}") from None
        seconds = time.perf_counter() - started
        return read_answer(response.status_code, response.content, seconds, request)

    def resident(self) -> int:
        """Resident bytes of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(found[1]) * 1024 if (found := re.search(r"VmRSS:\s+(\d+) kB", status)) else 0

    def metric(self, name: str) -> int:
        """The value of a metric without labels."""
        found = re.search(rf"^{name} (\S+)", self._client.get("/metrics").text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """The answer of /info: model, provider, threads, budgets."""
        about: dict[str, Any] = self._client.get("/info").json()
        return about

    @property
    def budgets(self) -> tuple[int, int, int]:
        """Budgets of a sequence in tokens: the lowest, the default, the highest."""
        low, budget, high = (int(self.info["tokens_per_document"][name]) for name in ("least", "default", "most"))
        return low, budget, high

    @property
    def precision(self) -> str:
        """Precision of the model's arithmetic."""
        return str(self.info["provider"]["arithmetic"])


def make_body(request: Request, tokens: int | None = None, **options: object) -> bytes:
    """The request as JSON, with a token budget or the bundle's own. It asks for all documents, so that the model reads all."""
    fields = {"query": request.query, "documents": request.documents, "top_n": len(request.documents), **options}
    return json.dumps(fields if tokens is None else fields | {"max_tokens_per_doc": tokens}).encode()


def read_answer(status: int, content: bytes, seconds: float, request: Request) -> Answer:
    """The answer, in the order of the documents. Raises ServiceError if it is an error, degraded or not sane."""
    if status != 200:
        raise ServiceError(f"keyblock-serve answered {status}: {content[:300].decode(errors='replace')}")
    answer = json.loads(content)
    meta, results = answer["meta"], answer["results"]
    if meta["degraded"]:
        raise ServiceError(f"keyblock-serve's answer is degraded: {meta['warnings']}")
    best = [result["index"] for result in results[:SANE_PLACES]]
    if request.relevant not in best:
        raise ServiceError(f"document {request.relevant} says the query's words, and {best} are ranked best")
    scores = [result["relevance_score"] for result in sorted(results, key=lambda result: result["index"])]
    stages = {stage: milliseconds / 1000 for stage, milliseconds in meta["timings_ms"].items()}
    return Answer(seconds, scores, stages, answer["usage"]["total_tokens"])


def last_line(log: Path) -> str:
    """The last line of a process's log."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it said nothing")
