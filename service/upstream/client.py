"""Sends requests to a reranker that runs elsewhere: finds out its kind, retries when it is busy, and reports errors in one line."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray

from keyblock.client.retries import AGAIN, pause, read_retry_after
from service.settings import Settings, UpstreamKind
from service.telemetry.account import CURRENT_ID, REQUEST_ID
from service.telemetry.metrics import Metrics
from service.upstream.wire import SHAPES, NonsenseError, read, written

log = logging.getLogger(__name__)
CONNECT_SECONDS = 2.0
MOST_ANSWER_BYTES = 1 << 20  # of an answer, plus ANSWER_SHARE times the request's, in case it repeats the passages
ANSWER_SHARE = 2
AWAY_AFTER, AWAY_SECONDS = 3, 2.0  # after this many failures in a row, nothing is sent for this time; then one request tries
MOST_BUSY_SECONDS = 600.0  # the longest Retry-After that is obeyed
BATCH_STATUSES = frozenset({400, 413, 422})  # the text of one passage may be the reason
SLOW_SECONDS = 1.0  # a request with less time than this that is not answered says nothing about the upstream
QUIET_SECONDS = 10.0  # for which the same problem is not logged again
PROBED_KINDS = (UpstreamKind.JINA, UpstreamKind.TEI)  # if the kind is not set; Cohere's answers can be read as Jina's


class UpstreamError(Exception):
    """The upstream has not given scores; the message is one line with the reason.

    Attributes:
        batch_specific: whether the reason may be in the batch, so that other passages may succeed.
    """

    def __init__(self, problem: str, *, batch_specific: bool = False) -> None:
        super().__init__(problem)
        self.batch_specific = batch_specific


class Answer(NamedTuple):
    """An answer of the upstream."""

    status: int
    retry_after: float | None
    content: bytes


class Upstream:
    """The client of the upstream. To be used on one event loop.

    Args:
        settings: address and limits of the upstream.
        metrics: of its model; counts requests.

    Attributes:
        kind: the upstream's API; auto until it has answered.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self.kind = settings.upstream_kind
        self._probing = asyncio.Lock()
        self._failures, self._away_until, self._busy_until = 0, 0.0, 0.0
        self._logged: dict[str, float] = {}
        key = settings.upstream_key.get_secret_value()
        self._http = httpx.AsyncClient(
            headers={"content-type": "application/json", "accept-encoding": "identity"}
            | ({"authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # `rank` limits the total time
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=settings.upstream_concurrency),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def rank(self, query: str, passages: Sequence[str], until: float, instruction: str = "") -> NDArray[np.float32]:
        """The logit of each passage, shape (passages,); `until` is the deadline, in seconds of `time.perf_counter`.

        Raises UpstreamError, and TimeoutError if there was too little time to judge the upstream.
        """
        self._check_away()
        started = time.perf_counter()
        allowed = until - started
        try:
            async with asyncio.timeout(until - time.perf_counter()):
                logits = await self._ranked(query, passages, until, instruction)
        except TimeoutError:
            if allowed < SLOW_SECONDS:
                self._metrics.add("upstream_requests", outcome="late")
                raise
            raise self._failed(f"has not answered in {allowed:.1f} s", away=True, outcome="late") from None
        self._failures = 0
        self._metrics.add("upstream_requests", outcome="ok")
        self._metrics.observe("upstream_seconds", time.perf_counter() - started)
        return logits

    async def _ranked(self, query: str, passages: Sequence[str], until: float, instruction: str) -> NDArray[np.float32]:
        kind = await self._known_kind(until)
        answer = await self._send_with_retries(kind, query, passages, until, instruction)
        if answer.status != 200:
            raise self._failed(self._refusal(answer), away=answer.status >= 500, batch_specific=answer.status in BATCH_STATUSES)
        try:
            return read(SHAPES[kind], answer.content, len(passages), self._settings.upstream_scores)
        except NonsenseError as error:
            raise self._failed(f"answers nonsense: {error}", outcome="nonsense", batch_specific=True) from None

    async def _known_kind(self, until: float) -> UpstreamKind:
        """The kind; if it is not set, a request about one word finds it out."""
        async with self._probing:
            if self.kind is UpstreamKind.AUTO and self._settings.upstream.rstrip("/").endswith("/v2/rerank"):
                self.kind = UpstreamKind.COHERE
            if self.kind is UpstreamKind.AUTO:
                self.kind = await self._probe(until)
                log.info("the upstream speaks as %s", self.kind.value)
            return self.kind

    async def _probe(self, until: float) -> UpstreamKind:
        answer = Answer(0, None, b"")
        for kind in PROBED_KINDS:
            answer = await self._send_with_retries(kind, "word", ["word"], until)
            if answer.status == 200:
                with suppress(NonsenseError):
                    read(SHAPES[kind], answer.content, 1, self._settings.upstream_scores)
                    return kind
            if answer.status in AGAIN:
                break  # it is busy, whatever its kind
        if answer.status == 200:
            raise self._failed("answers as none of cohere, jina and tei does: check the URL, or set upstream_kind")
        raise self._failed(self._refusal(answer), away=answer.status >= 500)

    async def _send_with_retries(
        self, kind: UpstreamKind, query: str, passages: Sequence[str], until: float, instruction: str = ""
    ) -> Answer:
        """The last answer, after as many attempts as retries and time allow. Raises UpstreamError."""
        body = written(SHAPES[kind], self._settings.upstream_model, query, passages, instruction)
        for attempt in range(self._settings.upstream_retries + 1):
            problem = ""
            self._check_busy()  # another request may have got that answer meanwhile
            try:
                answer = await self._send(body)
            except (httpx.HTTPError, ValueError) as error:  # ValueError: an invalid host name
                problem, answer = f"cannot be reached ({_line(error)})", Answer(0, None, b"")
            if not problem and answer.status not in AGAIN:
                return answer
            wait = pause(attempt, answer.retry_after, random.uniform)
            if (answer.retry_after or 0.0) > AWAY_SECONDS:
                self._busy_until = time.perf_counter() + min(wait, MOST_BUSY_SECONDS)
            if attempt == self._settings.upstream_retries or time.perf_counter() + wait >= until:
                break
            self._metrics.add("upstream_requests", outcome="retried")
            await asyncio.sleep(wait)
        if problem:
            raise self._failed(problem, away=True)
        return answer

    async def _send(self, body: bytes) -> Answer:
        """Make one attempt. Raises httpx.HTTPError, and UpstreamError for an answer that is too large."""
        limit = MOST_ANSWER_BYTES + ANSWER_SHARE * len(body)
        headers = {REQUEST_ID: CURRENT_ID.get() or "-"}
        async with self._http.stream("POST", self._settings.upstream, content=body, headers=headers) as response:
            received = bytearray()
            async for piece in response.aiter_raw():
                received += piece
                if len(received) > limit:
                    raise self._failed(f"answers nonsense: more than {limit} bytes", outcome="nonsense")
            return Answer(response.status_code, read_retry_after(response.headers.get("retry-after")), bytes(received))

    def _refusal(self, answer: Answer) -> str:
        """The meaning of an answer without scores."""
        if 300 <= answer.status < 400:
            return f"answers {answer.status}: it has moved; give the URL that it moved to"
        advice = {
            401: ": check upstream_key",
            403: ": check upstream_key",
            404: ": check the URL, which needs its path too, as in http://HOST:PORT/rerank",
            413: ": lower upstream_batch",
            429: ": it is busy",
        }.get(answer.status, f": {answer.content[:100].decode('utf-8', 'replace')!r}")
        return f"answers {answer.status}{advice}"

    def _check_away(self) -> None:
        """Raise UpstreamError if the upstream is busy or was away a moment ago; after some seconds one request may try again."""
        self._check_busy()
        now = time.perf_counter()
        if self._failures < AWAY_AFTER:
            return
        if now < self._away_until:
            self._metrics.add("upstream_requests", outcome="skipped")
            raise UpstreamError("was away just now")
        self._away_until = now + AWAY_SECONDS

    def _check_busy(self) -> None:
        """Raise UpstreamError while the upstream's Retry-After lasts."""
        left = self._busy_until - time.perf_counter()
        if left > 0:
            self._metrics.add("upstream_requests", outcome="skipped")
            raise UpstreamError(f"is busy, and has asked to be left alone for {math.ceil(left)} s more")

    def _failed(self, problem: str, *, away: bool = False, outcome: str = "failed", batch_specific: bool = False) -> UpstreamError:
        """Make the error, and log it unless it was logged a moment ago."""
        now = time.perf_counter()
        if away:
            self._failures += 1
            self._away_until = now + AWAY_SECONDS
        self._metrics.add("upstream_requests", outcome=outcome)
        kind = problem[: len("answers 500")]  # what follows may be the upstream's words, which are others each time
        if now - self._logged.get(kind, -QUIET_SECONDS) >= QUIET_SECONDS:
            self._logged[kind] = now
            log.warning("upstream %s", problem)
        return UpstreamError(problem, batch_specific=batch_specific)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
