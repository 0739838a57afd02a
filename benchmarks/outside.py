"""Compares an imported cross-encoder with sentence-transformers and infinity-emb on the same weights.

    python -m benchmarks.outside --checkpoint MODEL --bundle BUNDLE --data ../shared/data --out runs/outside
        [--collections squad-far squad-articles qmsum] [--split test] [--queries 60] [--depth 50] [--systems keyblock cross-encoder]
    python -m benchmarks.outside --checkpoint MODEL --bundle BUNDLE --starts 5

MODEL is a checkpoint that was trained without KeyBlock (see benchmarks/outside_pairs.py and outside_trainer.py). BUNDLE is what
keyblock-import made from it. Each system ranks the first candidates of the collection's BM25 run, whole documents, in one thread;
the systems take turns query by query. KeyBlock and infinity-emb run as services over HTTP, CrossEncoder.predict in its own process.
For peers, a document's title is its first line. With --starts the script instead times each system's start: from its command to
ready and to its first answer.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx

from benchmarks.performance.peers import INFINITY, PEERS, Server, Worker, python_of
from benchmarks.performance.service import Answer, Service
from benchmarks.performance.texts import Request
from training.collections.collection import Collection
from training.collections.types import Run
from training.evaluation.evaluate import Evaluation, evaluate_run, sample
from training.evaluation.records import record_evaluation, write_record
from training.evaluation.significance import p_text, paired_t_test

THREADS, SECONDS = 1, 600
KEYBLOCK, CROSS_ENCODER, PEER = "keyblock", "cross-encoder", "infinity"
NAMES = {KEYBLOCK: "KeyBlock's import", CROSS_ENCODER: "CrossEncoder.predict, 512 tokens", PEER: "infinity-emb's server"}
MEASURE = "RR@10"
INFINITY_CHARS = 122_880  # per document: infinity answers 422 to a longer one, and would read only its first 512 tokens
FIRST = Request("why did the bridge fall", ["The flood washed its pillars away. " * 100, "Bread needs an hour."], 0)


class Imported:
    """KeyBlock's service with the imported bundle."""

    def __init__(self, bundle: Path, log: Path, **settings: str) -> None:
        self._service = Service(THREADS, log, bundle=bundle, **settings)
        self._client = httpx.Client(base_url=self._service.url, timeout=SECONDS)

    def rank(self, request: Request, titles: list[str] | None = None) -> Answer:
        """Score the documents. Raises httpx.HTTPError."""
        documents = [{"title": title, "text": text} for title, text in zip(titles or [""] * 100, request.documents, strict=False)]
        body = json.dumps({"query": request.query, "documents": documents, "raw_scores": True}).encode()
        started = time.perf_counter()
        response = self._client.post("/rerank", content=body)
        seconds = time.perf_counter() - started
        answer = response.raise_for_status().json()
        results = sorted(answer["results"], key=lambda result: result["index"])
        return Answer(seconds, [result["relevance_score"] for result in results], tokens=answer["usage"]["total_tokens"])

    def stop(self) -> None:
        """Stop the service."""
        self._client.close()
        self._service.stop()


Running = Imported | Worker | Server


def opened(name: str, given: argparse.Namespace, logs: Path) -> Running:
    """Start a system; it is ready for requests."""
    if name == KEYBLOCK:
        return Imported(given.bundle, logs / f"{name}.log", **dict(one.split("=", 1) for one in given.setting))
    if name == PEER:
        return Server(python_of(INFINITY, given.peers), given.checkpoint, THREADS, logs / f"{name}.log")
    (peer,) = (one for one in PEERS if one.key == "torch")
    python = given.python or python_of(peer.environment, given.peers)
    return Worker(python, "cross-encoder", given.checkpoint, THREADS, logs / f"{name}.log")


def answer_of(system: Running, collection: Collection, query: str, candidates: list[str]) -> Answer:
    """Score a query's candidates."""
    documents = [collection.document(one) for one in candidates]
    question = collection.query(query)
    if isinstance(system, Imported):
        return system.rank(Request(question, [one.text for one in documents], 0), [one.title for one in documents])
    most = INFINITY_CHARS if isinstance(system, Server) else None
    return system.rank(Request(question, [f"{one.title}\n{one.text}".strip()[:most] for one in documents], 0))


def compared(given: argparse.Namespace, name: str, systems: Mapping[str, Running]) -> None:
    """Measure one collection. Print a table, and write a record of each system with the seconds of each query."""
    collection = Collection(given.data / name)
    queries = sample(collection.split(given.split), given.queries)
    run = collection.run(given.split)
    candidates: Run = {query: dict(list(run[query].items())[: given.depth]) for query in queries if run.get(query)}
    for system in systems.values():
        system.rank(FIRST)
    ranked: dict[str, Run] = {key: {} for key in systems}
    seconds: dict[str, list[float]] = {key: [] for key in systems}
    tokens = 0
    for number, query in enumerate(candidates):
        keys = list(systems) if number % 2 else list(reversed(systems))
        for key in keys:
            answer = answer_of(systems[key], collection, query, list(candidates[query]))
            tokens += answer.tokens
            order = sorted(zip(candidates[query], answer.scores, strict=True), key=lambda pair: -pair[1])
            ranked[key][query] = dict(order)
            seconds[key].append(answer.seconds)
        print(f"{name} {number + 1}/{len(candidates)}", *(f"{key} {seconds[key][-1]:.2f} s" for key in systems), flush=True)
    measured = {"BM25, as given": evaluate_run("BM25, as given", candidates, collection, queries)}
    for key in systems:
        measured[NAMES[key]] = evaluate_run(NAMES[key], ranked[key], collection, queries)
        measured[NAMES[key]].seconds = seconds[key]
        measured[NAMES[key]].documents = [len(candidates[query]) for query in candidates]
        details = {"depth": given.depth, "seconds": [round(one, 4) for one in seconds[key]]}
        write_record(record_evaluation(measured[NAMES[key]], name, given.split, details=details), given.out)
    pairs = sum(len(documents) for documents in candidates.values())
    read = tokens / max(pairs, 1)
    print(f"{name}, {given.split}: {len(queries)} queries, {pairs} documents, of each KeyBlock reads {read:.0f} tokens")
    print(table(measured), flush=True)
    if {CROSS_ENCODER, PEER} <= set(systems):
        print(agreement(ranked[PEER], ranked[CROSS_ENCODER]), flush=True)


def agreement(run: Run, reference: Run) -> str:
    """The largest difference between the peer's scores, which are probabilities, and those of predict on the same documents."""
    furthest = max(abs(run[query][name] - score) for query, scores in reference.items() for name, score in scores.items())
    same = sum(list(run[query]) == list(of) for query, of in reference.items())
    return f"{NAMES[PEER]} and {NAMES[CROSS_ENCODER]}: same order in {same} of {len(run)}, scores within {furthest:.1e}"


def table(measured: Mapping[str, Evaluation]) -> str:
    """Markdown: quality, p against the first of the systems that were asked, and time."""
    reference = next(one for one in measured.values() if one.seconds)
    values = {name: one.values[MEASURE] for name, one in measured.items()}
    lines = [
        f"| system | {MEASURE} | p | seconds a query, median | times as long as {reference.name}, median |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, one in measured.items():
        p = "" if one is reference else p_text(paired_t_test(values[reference.name], values[name]))
        median = f"{statistics.median(one.seconds):.2f}" if one.seconds else ""
        ratio = (
            f"{statistics.median(a / b for a, b in zip(one.seconds, reference.seconds, strict=True)):.2f}" if one.seconds else ""
        )
        lines.append(f"| {name} | {statistics.fmean(values[name].values()):.4f} | {p} | {median} | {ratio} |")
    return "\n".join(lines)


def starts(given: argparse.Namespace) -> None:
    """Time the start of each system: from the command to ready, and to the first answer."""
    for key in given.systems:
        rows = []
        for _ in range(given.starts):
            began = time.perf_counter()
            system = opened(key, given, given.out)
            ready = time.perf_counter() - began
            system.rank(FIRST)
            rows.append((ready, time.perf_counter() - began))
            system.stop()
        ready, first = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{NAMES[key]}: ready after {ready:.1f} s, first answer after {first:.1f} s (median of {given.starts})", flush=True)


def main() -> None:
    """Compare, or time starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="a directory of collections")
    parser.add_argument("--out", type=Path, default=Path("runs/outside"))
    parser.add_argument("--collections", nargs="+", default=["squad-far", "squad-articles", "qmsum"])
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--systems", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--starts", type=int, default=0, help="only time this number of starts of each system")
    parser.add_argument(
        "--setting", nargs="*", default=[], metavar="NAME=VALUE", help="setting of keyblock-serve, such as provider=cpu"
    )
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="directory of the peers' environments")
    parser.add_argument("--python", type=Path, help="a Python with sentence-transformers; by default it is installed in --peers")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.starts:
        starts(given)
        return
    with ExitStack() as stack:
        systems = {}
        for key in given.systems:
            systems[key] = opened(key, given, given.out)
            stack.callback(systems[key].stop)
        for name in given.collections:
            compared(given, name, systems)


if __name__ == "__main__":
    main()
