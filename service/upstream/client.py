"""One request to a reranker that runs elsewhere: its kind is found out, a busy one is asked again, each failure is one line."""

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray

from keyblock.client.retries import AGAIN, pause, read_retry_after
from service.machine import ASYNCIO, Machine
from service.settings import Settings, UpstreamKind
from service.telemetry.account import CURRENT_ID, REQUEST_ID
from service.telemetry.metrics import Metrics
from service.upstream.wire import SHAPES, NonsenseError, read, written

log = logging.getLogger(__name__)
CONNECT_SECONDS = 2.0
MOST_ANSWER_BYTES = 1 << 20  # of an answer, and ANSWER_SHARE times the request's, in case it repeats the passages
ANSWER_SHARE = 2
AWAY_AFTER, AWAY_SECONDS = 3, 2.0  # after so many failures in a row nothing is sent for so long, then one request tries
MOST_BUSY_SECONDS = 600.0  # that a Retry-After is believed
REFUSED = frozenset({400, 413, 422})  # as the text of one passage may be the reason
SLOW_SECONDS = 1.0  # a request that had less than this and is not answered in time says nothing of the upstream
QUIET_SECONDS = 10.0  # in which the same problem is not logged again
TRIED = (UpstreamKind.JINA, UpstreamKind.TEI)  # when the kind is not named; Cohere's answers are read as Jina's


class UpstreamError(Exception):
    """The upstream has not given scores; one line says why.

    Attributes:
        of_batch: whether the reason may be in what it was asked about, so that other passages may have better luck.
    """

    def __init__(self, problem: str, *, of_batch: bool = False) -> None:
        super().__init__(problem)
        self.of_batch = of_batch


class Answer(NamedTuple):
    """What came back."""

    status: int
    retry_after: float | None
    content: bytes


class Upstream:
    """Asks it. To be used on one event loop.

    Args:
        settings: where it is, and how it is asked.
        metrics: of its model; counts requests.
        machine: whose clock it uses, where it waits, and what carries its requests.
    """

    def __init__(self, settings: Settings, metrics: Metrics, machine: Machine = ASYNCIO) -> None:
        self._settings, self._metrics, self._machine = settings, metrics, machine
        self._kind = settings.upstream_kind
        self._probing = asyncio.Lock()
        self._failures, self._away_until, self._busy_until = 0, 0.0, 0.0
        self._logged: dict[str, float] = {}
        self._http: httpx.AsyncClient | None = None

    @property
    def kind(self) -> UpstreamKind:
        """Auto until it has answered."""
        return self._kind

    async def close(self) -> None:
        """Give the connections back."""
        if self._http is not None:
            await self._http.aclose()

    async def rank(self, query: str, passages: Sequence[str], until: float) -> NDArray[np.float32]:
        """The logit of each passage, shape (passages,); `until` as the machine's clock counts.

        Raises UpstreamError, and TimeoutError where there was too little time to say anything of the upstream.
        """
        self._check_away()
        started = self._machine.now()
        had = until - started
        try:
            async with self._machine.timeout(until):
                found = await self._ranked(query, passages, until)
        except TimeoutError:
            if had < SLOW_SECONDS:
                self._metrics.add("upstream_requests", outcome="late")
                raise
            raise self._failed(f"has not answered in {had:.1f} s", away=True, outcome="late") from None
        self._failures = 0
        self._metrics.add("upstream_requests", outcome="ok")
        self._metrics.observe("upstream_seconds", self._machine.now() - started)
        return found

    async def _ranked(self, query: str, passages: Sequence[str], until: float) -> NDArray[np.float32]:
        kind = await self._known_kind(until)
        answer = await self._answered(kind, query, passages, until)
        if answer.status != 200:
            raise self._failed(self._refusal(answer), away=answer.status >= 500, of_batch=answer.status in REFUSED)
        try:
            return read(SHAPES[kind], answer.content, len(passages), self._settings.upstream_scores)
        except NonsenseError as error:
            raise self._failed(f"answers nonsense: {error}", outcome="nonsense", of_batch=True) from None

    async def _known_kind(self, until: float) -> UpstreamKind:
        """The kind, found out by asking about a word where it is not named."""
        async with self._probing:
            if self._kind is UpstreamKind.AUTO and self._settings.upstream.rstrip("/").endswith("/v2/rerank"):
                self._kind = UpstreamKind.COHERE
            if self._kind is UpstreamKind.AUTO:
                self._kind = await self._probed(until)
                log.info("the upstream speaks as %s", self._kind.value)
            return self._kind

    async def _probed(self, until: float) -> UpstreamKind:
        answer = Answer(0, None, b"")
        for kind in TRIED:
            answer = await self._answered(kind, "word", ["word"], until)
            if answer.status == 200:
                with suppress(NonsenseError):
                    read(SHAPES[kind], answer.content, 1, self._settings.upstream_scores)
                    return kind
            if answer.status in AGAIN:
                break  # busy whatever it speaks
        if answer.status == 200:
            raise self._failed("answers as none of cohere, jina and tei does: check the URL, or set upstream_kind")
        raise self._failed(self._refusal(answer), away=answer.status >= 500)

    async def _answered(self, kind: UpstreamKind, query: str, passages: Sequence[str], until: float) -> Answer:
        """Its last answer, after as many attempts as there are retries and time for. Raises UpstreamError."""
        body = written(SHAPES[kind], self._settings.upstream_model, query, passages)
        for attempt in range(self._settings.upstream_retries + 1):
            problem = ""
            self._check_busy()  # another request may have heard it meanwhile
            try:
                answer = await self._sent(body)
            except (httpx.HTTPError, ValueError) as error:  # ValueError: a host that no name service can be asked about
                problem, answer = f"cannot be reached ({_line(error)})", Answer(0, None, b"")
            if not problem and answer.status not in AGAIN:
                return answer
            wait = pause(attempt, answer.retry_after, self._machine.uniform)
            if (answer.retry_after or 0.0) > AWAY_SECONDS:
                self._busy_until = self._machine.now() + min(wait, MOST_BUSY_SECONDS)
            if attempt == self._settings.upstream_retries or self._machine.now() + wait >= until:
                break
            self._metrics.add("upstream_requests", outcome="retried")
            await asyncio.sleep(wait)
        if problem:
            raise self._failed(problem, away=True)
        return answer

    async def _sent(self, body: bytes) -> Answer:
        """One attempt. Raises httpx.HTTPError, and UpstreamError for an answer that is too large."""
        most = MOST_ANSWER_BYTES + ANSWER_SHARE * len(body)
        headers = {REQUEST_ID: CURRENT_ID.get() or "-"}
        async with self._client().stream("POST", self._settings.upstream, content=body, headers=headers) as response:
            received = bytearray()
            async for piece in response.aiter_raw():
                received += piece
                if len(received) > most:
                    raise self._failed(f"answers nonsense: more than {most} bytes", outcome="nonsense")
            return Answer(response.status_code, read_retry_after(response.headers.get("retry-after")), bytes(received))

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            key = self._settings.upstream_key.get_secret_value()
            self._http = httpx.AsyncClient(
                headers={"content-type": "application/json", "accept-encoding": "identity"}
                | ({"authorization": f"Bearer {key}"} if key else {}),
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # the time as a whole is bounded by `rank`
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=self._settings.upstream_concurrency),
                transport=self._machine.transport(),
            )
        return self._http

    def _refusal(self, answer: Answer) -> str:
        """What an answer means that is none of scores."""
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
        """Raise UpstreamError where it asked for time, or was away just now; one request tries when that is some seconds ago."""
        self._check_busy()
        now = self._machine.now()
        if self._failures < AWAY_AFTER:
            return
        if now < self._away_until:
            self._metrics.add("upstream_requests", outcome="spared")
            raise UpstreamError("was away just now")
        self._away_until = now + AWAY_SECONDS

    def _check_busy(self) -> None:
        """Raise UpstreamError where it asked for time that is not over."""
        left = self._busy_until - self._machine.now()
        if left > 0:
            self._metrics.add("upstream_requests", outcome="spared")
            raise UpstreamError(f"is busy, and has asked to be left alone for {math.ceil(left)} s more")

    def _failed(self, problem: str, *, away: bool = False, outcome: str = "failed", of_batch: bool = False) -> UpstreamError:
        """The error, which is logged unless that was done a moment ago."""
        now = self._machine.now()
        if away:
            self._failures += 1
            self._away_until = now + AWAY_SECONDS
        self._metrics.add("upstream_requests", outcome=outcome)
        kind = problem[:20]
        if now - self._logged.get(kind, -QUIET_SECONDS) >= QUIET_SECONDS:
            self._logged[kind] = now
            log.warning("upstream %s", problem)
        return UpstreamError(problem, of_batch=of_batch)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
