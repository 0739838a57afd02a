"""What is measured, a function a part: each returns what the record keeps and the tables show."""

import asyncio
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import torch
from transformers import AutoTokenizer

from benchmarks.performance.bench import LONGEST, ROOT, Bench, Rank, in_turns, spread
from benchmarks.performance.peers import Peer, PeerError, Server
from tests.support.serving import REQUEST_SECONDS, Answer, Service, ServiceError, make_body
from tests.support.texts import Request

BUDGETS = (LONGEST, 256, 128, None)  # None: the bundle's own
LEAST = 1e-7  # a smaller relevance has no digits left
CLIENT_DOCUMENTS = 10
MEMORY_DOCUMENTS, MEMORY_WORDS, MEMORY_CLIENTS = 10, 500, 4
CACHE_A_REQUEST = 20 * 1024  # bytes of cache for each of the first requests: less than a request needs, so that it fills
BEFORE, MODEL = ("parse", "prepare", "select", "queue"), "model"


@dataclass(frozen=True)
class System:
    """A row of the tables: KeyBlock with a budget (None: the bundle's own), or a peer."""

    name: str
    tokens: int | None
    precision: str
    rank: Rank
    peer: Peer | None = None


def keyblock(bench: Bench, tokens: int | None) -> System:
    """KeyBlock with a budget of `tokens` tokens a document; with None, the embedded bundle as it is."""
    service = bench.service(wide=tokens is not None)
    name = f"KeyBlock, as it comes ({service.budgets[1]} tokens)" if tokens is None else f"KeyBlock, {tokens} tokens"
    return System(name, tokens, service.precision, lambda request: service.rank(request, tokens))


def start(bench: Bench) -> dict[str, Any]:
    """Seconds from the command to ready, of several starts in a row. The first one may have to read the files from disk."""
    seconds = []
    for _ in range(bench.sizes.starts):
        with bench.fresh_service() as service:
            seconds.append(service.start_seconds)
    return {"first": seconds[0], "seconds": spread(seconds)}


def throughput(bench: Bench) -> dict[str, Any]:
    """One request of many new documents, all systems in turns: a row for each.

    In a turn the peers and KeyBlock at the peers' length get the same documents. At other budgets KeyBlock gets others,
    since it caches prepared documents.
    """
    sizes = bench.sizes
    peers = [System(peer.name, LONGEST, peer.precision, running.rank, peer) for peer, running in bench.peers().items()]
    systems = [*(keyblock(bench, tokens) for tokens in BUDGETS), *peers]
    parity = differences(bench)
    shared = [bench.source.request(sizes.documents, sizes.words) for _ in range(sizes.turns)]

    def ask(system: System, turn: int) -> Answer | None:
        same = system.peer is not None or system.tokens == LONGEST
        return attempt(bench, system, shared[turn] if same else bench.source.request(sizes.documents, sizes.words))

    answers = in_turns({s.name: lambda turn, s=s: ask(s, turn) for s in systems}, sizes.turns)
    rows = []
    for system in systems:
        if given := [answer for answer in answers[system.name] if answer is not None]:
            default = system.peer is None or system.peer.default
            row = {"name": system.name, "ours": system.peer is None, "default": default, "tokens": system.tokens}
            rows.append(row | {"precision": system.precision, "seconds": spread([answer.seconds for answer in given])})
    return {"documents": sizes.documents, "words": sizes.words, "rows": rows, "parity": parity, "absent": dict(bench.absent)}


def attempt(bench: Bench, system: System, request: Request) -> Answer | None:
    """The answer; None if a peer fails, which removes it from the benchmark."""
    if system.peer is not None and system.peer.name in bench.absent:
        return None
    try:
        return system.rank(request)
    except PeerError as error:
        if system.peer is not None:
            bench.drop(system.peer, error)
        return None


def differences(bench: Bench) -> dict[str, float]:
    """The largest difference of a logit from KeyBlock's ranker in fp32, by peer, on the example request's paragraphs."""
    content = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
    paragraphs = [p for document in content["documents"] for p in document["text"].split("\n\n") if p]
    queries = [content["query"]] * len(paragraphs)
    encoded = AutoTokenizer.from_pretrained(str(bench.model))(
        queries, paragraphs, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
    )
    with torch.no_grad():
        wanted = bench.ranker(encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"]).tolist()
    found = {}
    for peer, running in bench.peers().items():
        try:
            found[peer.name] = largest_difference(running.rank(Request(content["query"], paragraphs, 0)).scores, wanted)
        except PeerError as error:
            bench.drop(peer, error)
    return found


def largest_difference(relevances: Sequence[float], logits: Sequence[float]) -> float:
    """The largest difference between logits and those behind relevances, which are sigmoids."""
    if len(relevances) != len(logits):
        raise PeerError(f"it gave {len(relevances)} scores for {len(logits)} documents")
    inside = [min(max(relevance, LEAST), 1 - LEAST) for relevance in relevances]
    return max(abs(math.log(one / (1 - one)) - logit) for one, logit in zip(inside, logits, strict=True))


def stages(bench: Bench) -> dict[str, Any]:
    """Where a request's time goes, with new and with known documents, at the longest budget and the bundle's own."""
    sizes, rows = bench.sizes, []
    for tokens in (LONGEST, None):
        system = keyblock(bench, tokens)
        requests = [bench.source.request(sizes.documents, sizes.words) for _ in range(sizes.turns)]
        answers = [(system.rank(request), system.rank(request)) for request in requests]
        for seen, given in zip(("cold", "warm"), zip(*answers, strict=True), strict=True):
            parts = [split(answer) for answer in given]
            median = {name: statistics.median(part[name] for part in parts) for name in parts[0]}
            share = statistics.median(1 - (part[MODEL] + part["after"]) / part["whole"] for part in parts)
            rows.append({"name": system.name, "tokens": tokens, "seen": seen, "stages": median, "share_before": share})
    return {"documents": sizes.documents, "words": sizes.words, "rows": rows}


def split(answer: Answer) -> dict[str, float]:
    """Seconds of each stage as a client sees them: `transfer` is HTTP, `after` ranks and writes the answer."""
    known = {stage: answer.stages[stage] for stage in (*BEFORE, MODEL) if stage in answer.stages}
    after = answer.stages["total"] - sum(known.values())
    return {"transfer": answer.seconds - answer.stages["total"], **known, "after": after, "whole": answer.seconds}


def length(bench: Bench) -> dict[str, Any]:
    """Seconds of a cold request at the longest budget, by the words of its documents: ten times as many, the same budget."""
    sizes, system = bench.sizes, keyblock(bench, LONGEST)

    def ask(words: int) -> float:
        return system.rank(bench.source.request(sizes.documents, words)).seconds

    taken = in_turns({str(words): lambda _, w=words: ask(w) for words in (sizes.words, sizes.long_words)}, sizes.turns)
    return {"documents": sizes.documents, "seconds": {words: spread(seconds) for words, seconds in taken.items()}}


def concurrency(bench: Bench) -> dict[str, Any]:
    """Documents a second by number of clients, of one request with as many documents, and of infinity's server."""
    sizes, service = bench.sizes, bench.service(wide=False)
    most = max(sizes.clients)

    def one_batch(_: int) -> float:
        request = bench.source.request(most * CLIENT_DOCUMENTS, sizes.client_words)
        return len(request.documents) / service.rank(request).seconds

    ways: dict[str, Callable[[int], float]] = {"one batch": one_batch}
    ways |= {f"{n} clients": lambda _, n=n: client_rate(bench, service.url, n, sizes.client_requests) for n in sizes.clients}
    for peer, running in bench.peers().items():
        if isinstance(running, Server):
            ways[f"{peer.name}: {most} clients"] = lambda _, r=running: client_rate(bench, r.url, most, 1)
    rates = in_turns(ways, sizes.turns)
    return {"clients": most, "words": sizes.client_words, "documents_a_second": {name: spread(r) for name, r in rates.items()}}


def client_rate(bench: Bench, url: str, clients: int, requests: int) -> float:
    """Documents a second of clients that each send so many requests, without the first burst of answers. Raises ServiceError."""
    made = [bench.source.request(CLIENT_DOCUMENTS, bench.sizes.client_words) for _ in range(clients * requests)]
    began = time.perf_counter()
    ended = send_all(url, map(make_body, made), clients)
    counted = ended[clients - 1 :] if len(ended) > clients else [began, *ended]
    return (len(counted) - 1) / (counted[-1] - counted[0]) * CLIENT_DOCUMENTS


def send_all(url: str, bodies: Iterable[bytes], clients: int) -> list[float]:
    """Let clients send all bodies, each the next when its last is answered. The times of the answers, in order.

    Raises ServiceError for an error or a degraded answer.
    """
    given, ended = iter(bodies), []
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def one_after_the_other(client: httpx.AsyncClient) -> None:
        while (body := next(given, None)) is not None:
            try:
                response = await client.post("/rerank", content=body, headers={"content-type": "application/json"})
            except httpx.TransportError as error:
                raise ServiceError(f"a request was not answered ({error})") from None
            if response.status_code != 200 or b'"degraded":true' in response.content:
                raise ServiceError(f"a request had an error or a degraded answer ({response.status_code})")
            ended.append(time.perf_counter())

    async def all_clients() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=REQUEST_SECONDS, limits=limits) as client:
            await asyncio.gather(*(one_after_the_other(client) for _ in range(clients)))

    asyncio.run(all_clients())
    return ended


def memory(bench: Bench) -> dict[str, Any]:
    """Resident bytes after a tenth of the requests and after all; the cache of documents is full from the first reading on."""
    last = bench.sizes.memory
    first = max(1, last // 10)
    cache = first * CACHE_A_REQUEST
    with bench.fresh_service(cache_bytes=cache) as service:
        found = {"first": first, "last": last, "cache_bytes": cache, "resident_start": service.resident()}
        for when, count in (("first", first), ("last", last - first)):
            send_all(service.url, mixed(bench, service, count), MEMORY_CLIENTS)
            found |= {f"resident_{when}": service.resident(), f"cached_{when}": service.cached()}
    return found


def mixed(bench: Bench, service: Service, count: int) -> Iterator[bytes]:
    """Requests with documents of 1 to 1,000 words and random budgets from the bundle's range."""
    rng = np.random.default_rng(0)
    low, _, high = service.budgets
    for _ in range(count):
        request = bench.source.request(MEMORY_DOCUMENTS, 2 * MEMORY_WORDS)
        sizes = rng.integers(1, 2 * MEMORY_WORDS + 1, MEMORY_DOCUMENTS)
        cut = [" ".join(text.split()[:size]) for text, size in zip(request.documents, sizes, strict=True)]
        yield make_body(request._replace(documents=cut), int(rng.integers(low, high + 1)))


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    part.__name__: part for part in (start, throughput, stages, length, concurrency, memory)
}
