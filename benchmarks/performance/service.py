"""KeyBlock as it is served: keyblock-serve in a process of its own, asked over HTTP."""

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

from benchmarks.event_loop import free_port
from benchmarks.performance.texts import Request

COMMAND = Path(sys.executable).with_name("keyblock-serve")
START_SECONDS, REQUEST_SECONDS = 120, 600
POLL_SECONDS = 0.01
SANE_PLACES = 3  # the document that says the query is among so many best


class ServiceError(RuntimeError):
    """The service did not start, or answered what a measurement cannot use; one line."""


class Answer(NamedTuple):
    """What a system said to one request.

    Attributes:
        seconds: from sending to the answer; of a peer in its process, of the call alone.
        scores: of the documents, in the order given.
        stages: seconds by stage, of the service alone.
        tokens: fed to the model; 0 where the system does not say.
    """

    seconds: float
    scores: list[float]
    stages: dict[str, float] = {}  # noqa: RUF012  # never changed
    tokens: int = 0


class Service:
    """A running keyblock-serve; stopped when the `with` block ends.

    Args:
        threads: for preparing and computing.
        log: a file for what it prints.
        command: what starts it, where that is not keyblock-serve.
        port: to listen on; by default a free one.
        patience: seconds that it has until it is ready.
        settings: more of its settings, by their names in service/settings.py; the cache of scores is off unless they say else.

    Attributes:
        process: of the service.

    Raises:
        ServiceError: it ends, or is not ready in time.
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
        # measurements ask the same again, and mean the model
        wanted = {"port": self.port, "threads": threads, "log_level": "warning", "score_cache_bytes": 0, **settings}
        given = {f"KEYBLOCK_{name.upper()}": str(value) for name, value in wanted.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KEYBLOCK_")}
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        started = time.perf_counter()
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, env=inherited | given, stdout=output, stderr=subprocess.STDOUT)
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
        """Ask the process to end, and wait for it; its exit code."""
        self._client.close()
        self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        """End the process as a machine's failure does."""
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

    def rank(self, request: Request, tokens: int | None = None) -> Answer:
        """Ask for the documents' scores; writing the request as JSON is not timed. Raises ServiceError."""
        body = make_body(request, tokens)
        started = time.perf_counter()
        try:
            response = self._client.post("/rerank", content=body)
        except httpx.TransportError as error:
            raise ServiceError(f"keyblock-serve does not answer ({error}): {last_line(self._log)}") from None
        seconds = time.perf_counter() - started
        return read_answer(response.status_code, response.content, seconds, request)

    def resident(self) -> int:
        """Bytes of memory that the process holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(found[1]) * 1024 if (found := re.search(r"VmRSS:\s+(\d+) kB", status)) else 0

    def cached(self) -> int:
        """Bytes of prepared documents that it keeps."""
        found = re.search(r"^keyblock_cache_bytes (\S+)", self._client.get("/metrics").text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """What it says of itself: model, provider, threads, budgets."""
        about: dict[str, Any] = self._client.get("/info").json()
        return about

    @property
    def budgets(self) -> tuple[int, int, int]:
        """Tokens a sequence may have: the least, those without asking, the most."""
        low, budget, high = (int(self.info["tokens_per_document"][name]) for name in ("least", "default", "most"))
        return low, budget, high

    @property
    def precision(self) -> str:
        """Of the model's arithmetic."""
        return str(self.info["provider"]["arithmetic"])


def make_body(request: Request, tokens: int | None = None) -> bytes:
    """The request as JSON, with a budget of tokens for each document or the bundle's own. The model reads all, as the peers' do."""
    fields = {"query": request.query, "documents": request.documents, "top_n": len(request.documents)}
    return json.dumps(fields if tokens is None else fields | {"max_tokens_per_doc": tokens}).encode()


def read_answer(status: int, content: bytes, seconds: float, request: Request) -> Answer:
    """The answer, in the order of the documents. Raises ServiceError where it is an error, degraded, warned of, or not sane."""
    if status != 200:
        raise ServiceError(f"keyblock-serve answered {status}: {content[:300].decode(errors='replace')}")
    answer = json.loads(content)
    meta, results = answer["meta"], answer["results"]
    # made-up documents hold one passage on the query, so that nothing stands out in the others
    warnings = [warning for warning in meta["warnings"] if not warning.startswith("selected_by:")]
    if meta["degraded"] or warnings:
        raise ServiceError(f"keyblock-serve's answer is degraded or was warned of: {warnings}")
    best = [result["index"] for result in results[:SANE_PLACES]]
    if request.relevant not in best:
        raise ServiceError(f"document {request.relevant} says the query's words, and {best} are ranked best")
    scores = [result["relevance_score"] for result in sorted(results, key=lambda result: result["index"])]
    stages = {stage: milliseconds / 1000 for stage, milliseconds in meta["timings_ms"].items()}
    return Answer(seconds, scores, stages, answer["usage"]["total_tokens"])


def last_line(log: Path) -> str:
    """The last thing that a process said."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it said nothing")
