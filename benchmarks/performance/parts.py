"""What is measured, a function a part: each yields rows, whose `table` names their table."""

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnxruntime
import torch
from transformers import AutoTokenizer

from benchmarks.harness import BUNDLE, ROOT, Row, in_turns, send_all, spread, store
from benchmarks.performance.bench import LONGEST, Bench
from benchmarks.performance.peers import Peer
from tests.support.serving import Answer, Service, make_body
from tests.support.texts import Request

BUDGETS = (LONGEST, 256, 128, None)  # None: the bundle's own
LEAST = 1e-7  # a smaller relevance has no digits left
CLIENT_DOCUMENTS = 10
BEFORE, MODEL = ("parse", "prepare", "select", "queue"), "model"


@dataclass(frozen=True)
class System:
    """A row of the tables: KeyBlock with a budget (None: the bundle's own), or a peer."""

    name: str
    tokens: int | None
    precision: str
    rank: Callable[[Request], Answer]
    peer: Peer | None = None


def keyblock(bench: Bench, tokens: int | None, *, second_look: bool = True) -> System:
    """KeyBlock with a budget of `tokens` tokens a document; with None, the embedded bundle as it is."""
    service = bench.service(wide=tokens is not None)
    name = f"KeyBlock, as it comes ({service.budgets[1]} tokens)" if tokens is None else f"KeyBlock, {tokens} tokens"
    name += "" if second_look else ", without the second look"
    return System(name, tokens, service.precision, lambda request: service.rank(request, tokens, second_look=second_look))


def start(bench: Bench) -> Iterator[Row]:
    """Seconds from the command to ready, of several starts in a row. The first one may have to read the files from disk."""
    seconds = []
    for _ in range(bench.sizes.starts):
        with Service(bench.threads, bench.home / "keyblock-fresh.log", bundle=BUNDLE) as service:
            seconds.append(service.start_seconds)
    what = "From `keyblock-serve` to 200 from `/health/ready`, every shape warmed up"
    yield {"table": what, "seconds": spread(seconds), "the first": seconds[0]}


def throughput(bench: Bench) -> Iterator[Row]:
    """One request of many new documents, all systems in turns: a row for each.

    In a turn the peers and KeyBlock at the peers' length get the same documents. At other budgets KeyBlock gets others,
    since it caches prepared documents.
    """
    sizes = bench.sizes
    peers = [System(peer.name, LONGEST, peer.precision, running.rank, peer) for peer, running in bench.peers.items()]
    systems = [*(keyblock(bench, tokens) for tokens in BUDGETS), keyblock(bench, None, second_look=False), *peers]
    shared = [bench.source.request(sizes.documents, sizes.words) for _ in range(sizes.turns)]

    def ask(system: System, turn: int) -> float:
        same = system.peer is not None or system.tokens == LONGEST
        return system.rank(shared[turn] if same else bench.source.request(sizes.documents, sizes.words)).seconds

    taken = in_turns({system.name: lambda turn, s=system: ask(s, turn) for system in systems}, sizes.turns)
    for system in systems:
        seconds = spread(taken[system.name])
        yield {
            "table": f"{sizes.documents} documents x {sizes.words:,} words, one request, nothing seen before",
            "system": system.name,
            "set-up": "default" if system.peer is None or system.peer.default else "",
            "tokens": system.tokens,
            "arithmetic": system.precision,
            "seconds": seconds,
            "documents/s": sizes.documents / seconds["median"],
        }
    for name, difference in differences(bench).items():
        yield {"table": "Largest difference of a logit from KeyBlock's ranker in fp32", "system": name, "difference": difference}
    own = f"KeyBlock {bench.service(wide=False).info['version']}, onnxruntime {onnxruntime.__version__}"
    for packages in dict.fromkeys([own, *(", ".join(peer.environment.packages) for peer in bench.peers)]):
        yield {"table": "Versions", "packages": packages}


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
    request = Request(content["query"], paragraphs, 0)
    return {peer.name: logit_difference(running.rank(request).scores, wanted) for peer, running in bench.peers.items()}


def logit_difference(relevances: Sequence[float], logits: Sequence[float]) -> float:
    """The largest difference between logits and those behind relevances, which are sigmoids."""
    inside = [min(max(relevance, LEAST), 1 - LEAST) for relevance in relevances]
    return max(abs(math.log(one / (1 - one)) - logit) for one, logit in zip(inside, logits, strict=True))


def stages(bench: Bench) -> Iterator[Row]:
    """Where a request's time goes, with new and with known documents, at the longest budget and the bundle's own."""
    sizes = bench.sizes
    for tokens in (LONGEST, None):
        system = keyblock(bench, tokens)
        requests = [bench.source.request(sizes.documents, sizes.words) for _ in range(sizes.turns)]
        answers = [(system.rank(request), system.rank(request)) for request in requests]
        for seen, given in zip(("cold", "warm"), zip(*answers, strict=True), strict=True):
            parts = [split(answer) for answer in given]
            median = {name: 1000 * statistics.median(part[name] for part in parts) for name in parts[0]}
            share = statistics.median(1 - (part[MODEL] + part["after"]) / part["whole"] for part in parts)
            table = f"Milliseconds, {sizes.documents} documents x {sizes.words:,} words"
            yield {"table": table, "system": system.name, "tokens": tokens, "seen": seen, **median, "before the model": share}


def split(answer: Answer) -> dict[str, float]:
    """Seconds of each stage as a client sees them: `transfer` is HTTP, `after` ranks and writes the answer."""
    known = {stage: answer.stages[stage] for stage in (*BEFORE, MODEL) if stage in answer.stages}
    after = answer.stages["total"] - sum(known.values())
    return {"transfer": answer.seconds - answer.stages["total"], **known, "after": after, "whole": answer.seconds}


def length(bench: Bench) -> Iterator[Row]:
    """Seconds of a cold request at the longest budget, by the words of its documents: ten times as many, the same budget."""
    sizes, system = bench.sizes, keyblock(bench, LONGEST)

    def ask(words: int) -> float:
        return system.rank(bench.source.request(sizes.documents, words)).seconds

    taken = in_turns({words: lambda _, w=words: ask(w) for words in (sizes.words, sizes.long_words)}, sizes.turns)
    for words, seconds in taken.items():
        yield {
            "table": f"{sizes.documents} documents, cold, {LONGEST} tokens",
            "words a document": words,
            "seconds": spread(seconds),
        }


def concurrency(bench: Bench) -> Iterator[Row]:
    """Documents a second by number of clients, of one request with as many documents, and of infinity's server."""
    sizes, service = bench.sizes, bench.service(wide=False)
    most = max(sizes.clients)

    def one_batch(_: int) -> float:
        request = bench.source.request(most * CLIENT_DOCUMENTS, sizes.client_words)
        return len(request.documents) / service.rank(request).seconds

    ways: dict[str, Callable[[int], float]] = {"one batch": one_batch}
    ways |= {f"{n} clients": lambda _, n=n: client_rate(bench, service.url, n, sizes.client_requests) for n in sizes.clients}
    for peer, running in bench.peers.items():
        if running.url:
            ways[f"{peer.name}: {most} clients"] = lambda _, r=running: client_rate(bench, r.url, most, 1)
    rates = {name: spread(found) for name, found in in_turns(ways, sizes.turns).items()}
    table = f"Requests of {CLIENT_DOCUMENTS} documents x {sizes.client_words:,} words; one batch is a single request of as many"
    for name, rate in rates.items():
        yield {"table": table, "who": name, "documents/s": rate, "over one batch": rate["median"] / rates["one batch"]["median"]}


def client_rate(bench: Bench, url: str, clients: int, requests: int) -> float:
    """Documents a second of clients that each send so many requests, without the first burst of answers. Raises ServiceError."""
    made = [bench.source.request(CLIENT_DOCUMENTS, bench.sizes.client_words) for _ in range(clients * requests)]
    began = time.perf_counter()
    ended = send_all(url, map(make_body, made), clients)
    counted = ended[clients - 1 :] if len(ended) > clients else [began, *ended]
    return (len(counted) - 1) / (counted[-1] - counted[0]) * CLIENT_DOCUMENTS


def stored(bench: Bench) -> Iterator[Row]:
    """Documents stored and understood a second, what a request takes beside that and after it, and what a kill leaves."""
    sizes, folder = bench.sizes, Path(tempfile.mkdtemp(dir=bench.home))
    begin = partial(Service, bench.threads, bench.home / "keyblock-stored.log", bundle=BUNDLE, store=folder)
    texts = {str(n): text for n, text in enumerate(bench.source.request(sizes.stored, sizes.words).documents)}
    requests = [bench.source.request(sizes.documents, sizes.words) for _ in range(2 * sizes.turns)]
    with begin() as service:
        began = time.perf_counter()
        store(service.url, texts)
        put, size = time.perf_counter() - began, service.metric("keyblock_store_bytes")
        beside = [service.rank(request).seconds for request in requests[: sizes.turns]]
        left = service.metric("keyblock_store_unread_documents")
        service.kill()
    with begin() as service:
        while service.metric("keyblock_store_unread_documents") or not service.metric("keyblock_understood_documents_total"):
            time.sleep(1)
        read = time.perf_counter() - began
        alone = [service.rank(request).seconds for request in requests[sizes.turns :]]
        grown, there = service.metric("keyblock_store_bytes"), service.metric("keyblock_store_documents")
    yield {
        "table": f"{sizes.stored} documents of {sizes.words:,} words: stored, read by the sentence encoder, killed between",
        "stored/s": sizes.stored / put,
        "understood/s": sizes.stored / read,
        "unread at the kill": left,
        "there after it": there,
        "bytes a document": [size / sizes.stored, grown / sizes.stored],
        "a request beside it, times": statistics.median(beside) / statistics.median(alone),
    }


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    part.__name__: part for part in (start, throughput, stages, length, concurrency, stored)
}
