"""A simulated reranker on another server, behind httpx: it answers, or is busy, slow, silent, down, or sends nonsense."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import httpx
import orjson

from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import UPSTREAM_SALT, logit
from service.settings import Settings
from service.telemetry.account import REQUEST_ID
from service.upstream.client import AWAY_SECONDS, MOST_ANSWER_BYTES, MOST_BUSY_SECONDS

FAULTS = (
    "upstream busy",
    "upstream slow",
    "upstream silent",
    "upstream away",
    "upstream resets",
    "upstream errs",
    "upstream talks",
)
PROBE = b'"word"'
SHARE = 0.7  # share of the requests that meet an active fault
SECONDS, TOKEN_SECONDS = 0.002, 1e-3
REFUSALS = (400, 401, 404, 413, 422, 500, 502, 503, 504)
NONSENSE = (b"", b"{", b"[]", b"null", b"[" * 5000, b'{"results": 3}', b'{"results": [{"index": 0, "relevance_score": 1e999}]}')


class SimulatedUpstream(httpx.AsyncBaseTransport):
    """An httpx transport that answers requests itself.

    Args:
        machine: provides the clock.
        random: random numbers of the faults.
        settings: the service's settings, which limit its calls.

    Attributes:
        faults: active faults, with their severity from 0 to 1.
        calls: number of calls for each request, by its number; probes do not count.
        wrong: calls that break the limits, as messages.
    """

    def __init__(self, machine: SimulatedMachine, random: Random, settings: Settings) -> None:
        self.faults: dict[str, float] = {}
        self.wrong: list[str] = []
        self._machine, self._random, self._settings = machine, random, settings
        self._in_flight, self._busy_until = 0, 0.0
        self.calls = Counter[str]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See AsyncBaseTransport."""
        body = await request.aread()
        self._check(request.headers.get(REQUEST_ID, ""), body)
        self._in_flight += 1
        try:
            return await self._answer(orjson.loads(body))
        finally:
            self._in_flight -= 1

    def _check(self, number: str, body: bytes) -> None:
        """Note a request that asks for more than the limits allow."""
        now = self._machine.now()
        self.calls[number] += PROBE not in body
        if self._in_flight >= self._settings.upstream_concurrency:
            self.wrong.append(f"the upstream has {self._in_flight + 1} requests at once, of {self._settings.upstream_concurrency}")
        if now < self._busy_until:
            self.wrong.append(f"the upstream is asked {self._busy_until - now:.3f} s before it wants to be")

    async def _answer(self, content: dict[str, Any]) -> httpx.Response:
        passages = content.get("documents") or content["texts"]
        meets = self.faults if self._random.random() < SHARE else {}
        seconds = SECONDS + TOKEN_SECONDS * len(passages) * self._random.random()
        await asyncio.sleep(seconds + 5 * meets.get("upstream slow", 0.0) + 1e5 * ("upstream silent" in meets))
        if "upstream away" in meets:
            raise httpx.ConnectError("All connection attempts failed")
        if "upstream resets" in meets:
            raise self._random.choice((httpx.ReadError, httpx.RemoteProtocolError))("connection reset")
        if "upstream busy" in meets:
            return self._busy(meets["upstream busy"])
        if "upstream errs" in meets:
            return _response(self._random.choice(REFUSALS), b"no")
        results = self._results(content, passages)
        if "upstream talks" in meets:
            self._garble(results)
            if self._random.random() < 0.5:
                return _response(200, self._random.choice((*NONSENSE, b" " * (MOST_ANSWER_BYTES + 10**6))))
        return _response(200, orjson.dumps(results if "texts" in content else {"results": results}))

    def _busy(self, amount: float) -> httpx.Response:
        """An answer with status 429, sometimes with a Retry-After."""
        seconds = int(amount * 10) if self._random.random() < 0.5 else None
        if seconds is not None and seconds > AWAY_SECONDS:
            self._machine.loop.call_soon(self._leave_alone, min(seconds, MOST_BUSY_SECONDS))
        return _response(429, b"", {} if seconds is None else {"retry-after": str(seconds)})

    def _leave_alone(self, seconds: float) -> None:
        self._busy_until = max(self._busy_until, self._machine.now() + seconds)

    def _results(self, content: dict[str, Any], passages: list[str]) -> list[dict[str, Any]]:
        query = int(content["query"]) if content["query"].isdigit() else 0
        score = "score" if "texts" in content else "relevance_score"
        keys = [int(text) if text.isdigit() else 0 for text in passages]
        return [{"index": n, score: float(logit(UPSTREAM_SALT, query, key, 0))} for n, key in enumerate(keys)]

    def _garble(self, results: list[dict[str, Any]]) -> None:
        """Remove or repeat one result, or turn its score into a text."""
        kind, last = self._random.randrange(3), results[-1]
        if kind == 0:
            results.pop()
        elif kind == 1:
            results.append(dict(last))
        else:
            last.update(dict.fromkeys(last.keys() - {"index"}, "7"))


def _response(status: int, content: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    """A response whose body is not read yet."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))
