"""Load of all kinds, so that every metric has values to show.

Clients ask one request after the other, so that the load is as much as the machine can do, whatever machine it is; how many there
are goes by the phase. Some of them have deadlines, hang up, send what is no request, speak TEI's dialect or rank by id.
"""

import asyncio
import itertools
import json
import random
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import httpx

from tests.support.texts import Source

KINDS = {"text": 8, "id": 3, "hurried": 4, "tei": 3, "large": 1, "malformed": 1, "gone": 1}  # and how often they come
POOL = 12  # different requests of each kind: some documents are seen again
STORED = 40
DEADLINES = (60, 150, 500)  # milliseconds
GONE_AFTER = 0.02  # seconds
NOTHING = " \n "


class Phase(NamedTuple):
    """So many clients at once, for so many seconds, each waiting so long after an answer."""

    seconds: float
    clients: int
    pause: float = 0.0


class Size(NamedTuple):
    """Documents and words of a small request, and documents of a large one."""

    documents: int = 10
    words: int = 200
    large: int = 100


class Load:
    """Requests to services that share the work in turns.

    Args:
        urls: of the services.
        source: of texts.
        size: of requests.
    """

    def __init__(self, urls: Sequence[str], source: Source, size: Size) -> None:
        self._urls = itertools.cycle(urls)
        self._all = list(urls)
        self._stored = source.request(STORED, size.words).documents
        small = [source.request(size.documents, size.words) for _ in range(POOL)]
        self._small = [{"query": one.query, "documents": [*one.documents, NOTHING]} for one in small]
        large = source.request(size.large, size.words)
        self._large = {"query": large.query, "documents": large.documents}
        self._size = size

    async def run(self, phases: Sequence[Phase]) -> None:
        """All phases, one after the other."""
        lines = "\n".join(json.dumps({"id": str(number), "text": text}) for number, text in enumerate(self._stored))
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            for url in self._all:
                (await client.put(f"{url}/documents", content=lines)).raise_for_status()
            for phase in phases:
                clients = [asyncio.create_task(self._ask(client, phase.pause)) for _ in range(phase.clients)]
                await asyncio.sleep(phase.seconds)
                for one in clients:
                    one.cancel()
                await asyncio.gather(*clients, return_exceptions=True)

    async def _ask(self, client: httpx.AsyncClient, pause: float) -> None:
        while True:
            kind = random.choices(list(KINDS), list(KINDS.values()))[0]
            body = b"{" if kind == "malformed" else json.dumps(self._body(kind)).encode()
            trace = {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}
            try:
                timeout = GONE_AFTER if kind == "gone" else 120
                await client.post(f"{next(self._urls)}/rerank", content=body, headers=trace, timeout=timeout)
            except httpx.TimeoutException:
                pass
            await asyncio.sleep(random.expovariate(1 / pause) if pause else 0)

    def _body(self, kind: str) -> dict[str, object]:
        small = random.choice(self._small)
        if kind in ("large", "gone"):
            return self._large
        if kind == "hurried":
            return self._large | {"deadline_ms": random.choice(DEADLINES)}
        if kind == "tei":
            return {"query": small["query"], "texts": small["documents"]}
        if kind == "id":
            numbers = random.sample(range(STORED + 4), self._size.documents)  # some are unknown
            return {"query": small["query"], "documents": [{"id": str(number)} for number in numbers]}
        return small
