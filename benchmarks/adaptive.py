"""Cost and quality of rules of adaptive evidence: tokens and quality against the fixed budget, and seconds through HTTP.

    python -m benchmarks.adaptive --data DATA                                  measures every rule on dev
    python -m benchmarks.adaptive --data DATA --split test --only CHOSEN       measures one rule on test, and the fixed budget
    python -m benchmarks.adaptive --data DATA --http                           times two services, with and without the rule
    python -m benchmarks.adaptive --publish                                    writes the tables into docs/adaptive.md

The program may be stopped and started again: it keeps measurements, and logits in `--kept`. A sequence is scored once, however many
rules select it. The score is the fused one, as in the service.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from benchmarks.cascade import Remembering
from benchmarks.performance.report import put
from benchmarks.performance.service import REQUEST_SECONDS, Service
from benchmarks.systems import ROOT
from keyblock.bundle import Bundle, load_bundle, write_bundle
from keyblock.runtime.model import GraphModel
from keyblock.scoring import Scored
from training.collections.collection import Collection
from training.collections.json_files import read_json, write_json
from training.evaluation.evaluate import evaluate, sample
from training.evaluation.ranking import LocalRanker, changed
from training.evaluation.records import Record, read_records, record_evaluation, write_record
from training.evaluation.significance import correct, difference_interval, p_text, paired_t_test
from training.evaluation.tables import markdown
from training.examples.preparation import Preparation

DEFAULT = ROOT / "models" / "default"
COLLECTIONS = ("squad-articles", "squad-far", "qmsum", "evidence")
ON_TEST = {"squad-articles": 1000, "squad-far": None, "qmsum": None, "evidence": 400}  # None: all
MEASURES = ("nDCG@10", "RR@10")
FIXED, CHOSEN = "fixed 128", "relative .3, promise .5, to 192"
MARKS = {name: f"<!-- {name}: python -m benchmarks.adaptive --publish writes from here -->" for name in ("dev", "test", "http")}


def packing(budget: int, **rule: Any) -> dict[str, Any]:
    """The changes of the bundle's packing."""
    return {"budget": budget, "budget_range": [96, max(budget, 128)], "adaptive": rule or None}


SETTINGS: dict[str, dict[str, Any]] = {
    FIXED: packing(128),
    "fixed 96": packing(96),
    "fixed 192": packing(192),
    "the best block alone": packing(192, name="relative", promise=1.0, ratio=1.0),
    "relative .3, to 128": packing(128, name="relative", ratio=0.3),
    "relative .3, to 192": packing(192, name="relative", ratio=0.3),
    "share .5, to 192": packing(192, name="share", share=0.5),
    "density .2, to 192": packing(192, name="density", ratio=0.2),
    "promise .5 alone, to 128": packing(128, name="relative", promise=0.5, ratio=0.0),
    "promise .5 alone, to 192": packing(192, name="relative", promise=0.5, ratio=0.0),
    "relative .3, promise .5, to 128": packing(128, name="relative", promise=0.5, ratio=0.3),
    "relative .3, promise .4, to 192": packing(192, name="relative", promise=0.4, ratio=0.3),
    CHOSEN: packing(192, name="relative", promise=0.5, ratio=0.3),
    "relative .5, promise .5, to 192": packing(192, name="relative", promise=0.5, ratio=0.5),
    "relative .3, promise .6, to 192": packing(192, name="relative", promise=0.6, ratio=0.3),
    "share .5, promise .5, to 192": packing(192, name="share", promise=0.5, share=0.5),
    "density .2, promise .5, to 192": packing(192, name="density", promise=0.5, ratio=0.2),
}


@dataclass
class Counting(LocalRanker):
    """Counts the tokens that the model reads.

    Attributes:
        tokens: tokens of all sequences so far.
        documents: documents ranked so far.
    """

    tokens: int = 0
    documents: int = 0

    def score(self, query_id: str, candidates: Sequence[str], budget: int | None = None, results: int | None = None) -> Scored:
        """See LocalRanker."""
        scored = super().score(query_id, candidates, budget, results)
        self.tokens += sum(len(packed.ids) for selection in scored.selections for packed in selection.sequences)
        self.documents += len(candidates)
        return scored


def measure_all(options: argparse.Namespace) -> None:
    """Measure the missing settings, one collection after the other, and print the table."""
    bundle = load_bundle(options.bundle)
    inner = GraphModel.open(bundle, options.provider, options.threads)
    for name in options.collections:
        if due := list(missing(name, options)):
            prepared = Preparation(Collection(options.data / name), bundle.pipeline)
            model = Remembering(inner, read_kept(options.kept / f"{name}.npz"))
            for setting in due:
                measure(setting, prepared, bundle, model, options)
                write_kept(model.known, options.kept / f"{name}.npz")
    print(table(read_records(options.records), options.split))


def missing(collection: str, options: argparse.Namespace) -> Iterator[str]:
    """The settings that are not measured yet, the fixed budget first."""
    found = {(r.collection, r.split, r.system) for r in read_records(options.records)}
    place, due = cell(collection, options.split), (FIXED, *options.only)
    yield from (name for name in SETTINGS if name in due and (place, options.split, name) not in found)


def cell(collection: str, split: str) -> str:
    """The name of a collection's split in the records."""
    return f"{collection}, {split}"


def measure(setting: str, prepared: Preparation, bundle: Bundle, model: Remembering, options: argparse.Namespace) -> None:
    """Measure one setting on a fixed sample of the split's queries. All settings share the bundle's prepared documents."""
    split, collection = options.split, prepared.collection
    run = collection.run(split)
    queries = sample(sorted(run), options.queries if split == "dev" else ON_TEST[collection.name])
    candidates = {query: dict(list(run[query].items())[: options.depth]) for query in queries}
    pipeline = changed(bundle.pipeline, {"packing": SETTINGS[setting], "cascade": None}, bundle.path)
    ranker = Counting(setting, Preparation(collection, pipeline, lambda one: prepared.document(one.doc_id)), model)
    evaluation = evaluate(ranker, collection, queries, candidates, progress=False)
    details = {"depth": options.depth, "tokens": round(ranker.tokens / ranker.documents, 2)}
    record = record_evaluation(evaluation, cell(collection.name, split), split, details=details, ms_per_document=None)
    write_record(record, options.records)
    print(f"{collection.name} {setting}: {details['tokens']} tokens, {record.means['nDCG@10']:.4f}", flush=True)


def read_kept(path: Path) -> dict[bytes, np.float32]:
    """The kept logits, by the bytes of a sequence's ids."""
    if not path.exists():
        return {}
    with np.load(path) as kept:
        ids, ends, logits = kept["ids"], kept["ends"], kept["logits"]
    parts = np.split(ids, ends[:-1]) if len(ends) else []
    return {part.tobytes(): logit for part, logit in zip(parts, logits, strict=True)}


def write_kept(known: Mapping[bytes, np.float32], path: Path) -> None:
    """Write logits to a file, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = np.cumsum([len(key) // 4 for key in known])
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, ids=np.frombuffer(b"".join(known), np.int32), ends=ends, logits=np.asarray(list(known.values()), np.float32))
    partial.replace(path)


def table(records: Sequence[Record], split: str) -> str:
    """A row for each setting: tokens a document, nDCG@10 and RR@10 by collection, as differences from the fixed budget.

    On test, the table of `test_table`.
    """
    found = {(record.collection, record.system): record for record in records if record.split == split}
    places = [cell(name, split) for name in COLLECTIONS if (cell(name, split), FIXED) in found]
    names = [name for name in SETTINGS if any((place, name) in found for place in places)]
    if split == "test":
        return test_table(found, places, [name for name in names if name != FIXED])
    head = ["", *(f"{place.split(',')[0]}: {what}" for place in places for what in ("tokens", *MEASURES)), "tokens, mean"]
    return markdown([head, *([name, *dev_cells(found, places, name)] for name in names)])


def dev_cells(found: Mapping[tuple[str, str], Record], places: Sequence[str], name: str) -> Iterator[str]:
    """The cells of one setting: the fixed budget's means, or the differences from them; at the end its share of the tokens."""
    shares = []
    for place in places:
        own, fixed = found.get((place, name)), found[place, FIXED]
        if own is None:
            yield from ("", *("" for _ in MEASURES))
            continue
        shares.append(own.details["tokens"] / fixed.details["tokens"])
        yield f"{own.details['tokens']:.0f}"
        yield from (f"{own.means[m]:.4f}" if name == FIXED else f"{own.means[m] - fixed.means[m]:+.4f}" for m in MEASURES)
    yield f"{statistics.fmean(shares):.0%}" if len(shares) == len(places) else ""


def test_table(found: Mapping[tuple[str, str], Record], places: Sequence[str], names: Sequence[str]) -> str:
    """A row for each collection and setting, with paired t-tests against the fixed budget, Holm-corrected over all of them."""
    head = ["test", "queries", "", "tokens", *(part for m in MEASURES for part in (m, "difference, 95% interval", "p"))]
    pairs = [(found[place, FIXED], found[place, name]) for place in places for name in names if (place, name) in found]
    p_values = iter(correct([paired_t_test(own.by_query[m], fixed.by_query[m]) for fixed, own in pairs for m in MEASURES]))
    rows = []
    for fixed, own in pairs:
        collection, queries = fixed.collection.split(",")[0], f"{len(fixed.queries)}"
        plain = (part for m in MEASURES for part in (f"{fixed.means[m]:.4f}", "", ""))
        rows.append([collection, queries, FIXED, f"{fixed.details['tokens']:.1f}", *plain])
        compared = (part for m in MEASURES for part in (f"{own.means[m]:.4f}", difference(own, fixed, m), p_text(next(p_values))))
        share = own.details["tokens"] / fixed.details["tokens"]
        rows.append([collection, queries, own.system, f"{own.details['tokens']:.1f} ({share:.0%})", *compared])
    return markdown([head, *rows])


def difference(own: Record, fixed: Record, measure: str) -> str:
    """The mean difference and its 95% interval."""
    low, high = difference_interval(own.by_query[measure], fixed.by_query[measure])
    return f"{own.means[measure] - fixed.means[measure]:+.4f} ({low:+.4f} to {high:+.4f})"


class Timing(NamedTuple):
    """The cost of one request.

    Attributes:
        seconds: from sending to the answer.
        model: the seconds of these in the model.
        tokens: tokens that the model read.
    """

    seconds: float
    model: float
    tokens: int


def compare_services(options: argparse.Namespace) -> None:
    """Send the same requests in turns to a service with the fixed budget and one with the rule; write the figures."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = load_bundle(options.bundle)
        paths = [with_rule(bundle, name, Path(folder) / f"{n}").path for n, name in enumerate((FIXED, CHOSEN))]  # without a cascade
        logs = [Path(folder) / name for name in ("fixed.log", "adaptive.log")]
        with (
            Service(options.threads, logs[0], bundle=paths[0]) as fixed,
            Service(options.threads, logs[1], bundle=paths[1]) as adaptive,
        ):
            rows = {name: in_turns(name, [fixed.url, adaptive.url], options) for name in options.collections}
    write_json(options.records / "http.json", rows | {"threads": options.threads, "depth": options.depth})
    print(http_table(rows))


def with_rule(bundle: Bundle, setting: str, path: Path) -> Bundle:
    """A copy of the bundle with a setting's packing, and without a cascade."""
    pipeline = changed(bundle.pipeline, {"packing": SETTINGS[setting], "cascade": None}, bundle.path).config
    files = {name: bundle.path / name for name in bundle.manifest.files}
    return write_bundle(path, bundle.manifest.model_copy(update={"pipeline": pipeline}), files)


def in_turns(name: str, urls: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Time the services on a collection's dev queries: medians of each service, and of the ratios within each pair."""
    collection = Collection(options.data / name)
    run = collection.run("dev")
    pairs: list[list[Timing]] = []
    for query in sample(sorted(run), options.requests + 1):
        body = request_body(collection, query, list(run[query])[: options.depth])
        for url in urls:
            ask(url, body)  # prepares the documents, as those of a store are
        turn = [ask(url, body) for url in (urls if len(pairs) % 2 else urls[::-1])]
        pairs.append(turn if len(pairs) % 2 else turn[::-1])
    timed = pairs[1:]  # the first warms up
    found: dict[str, Any] = {"requests": len(timed)}
    for place, kind in enumerate(("fixed", "adaptive")):
        found[kind] = {what: statistics.median(getattr(pair[place], what) for pair in timed) for what in Timing._fields}
    for what in Timing._fields:
        ratios = [getattr(adaptive, what) / getattr(fixed, what) for fixed, adaptive in timed]
        found[f"{what}_ratio"] = round(statistics.median(ratios), 4)
    return found


def request_body(collection: Collection, query: str, candidates: Sequence[str]) -> bytes:
    """The body that a search back end would send: the query and whole documents."""
    documents = [{"title": one.title, "text": one.text} for one in map(collection.document, candidates)]
    return json.dumps({"query": collection.query(query), "documents": documents}).encode()


def ask(url: str, body: bytes) -> Timing:
    """Send a request and wait for the answer. Raises httpx.HTTPError if there is none, or an error status."""
    began = time.perf_counter()
    response = httpx.post(f"{url}/rerank", content=body, timeout=REQUEST_SECONDS)
    seconds = time.perf_counter() - began
    answer = response.raise_for_status().json()
    return Timing(seconds, answer["meta"]["timings_ms"]["model"] / 1000, answer["usage"]["total_tokens"])


def http_table(rows: Mapping[str, Any]) -> str:
    """A row for each collection."""
    head = ["", "requests", "seconds, fixed", "seconds, adaptive", "ratio", "of the model", "of tokens"]
    measured = [(name, row) for name, row in rows.items() if isinstance(row, dict)]
    return markdown([head, *([name, *http_cells(row)] for name, row in measured)])


def http_cells(row: Mapping[str, Any]) -> list[str]:
    """The cells of one collection."""
    seconds = [f"{row[kind]['seconds']:.3f}" for kind in ("fixed", "adaptive")]
    return [f"{row['requests']}", *seconds, *(f"{row[f'{what}_ratio']:.2f}" for what in Timing._fields)]


def publish(options: argparse.Namespace) -> None:
    """Write the tables of all measurements into the page."""
    records = read_records(options.records)
    for split in ("dev", "test"):
        put(options.page, table(records, split), MARKS[split])
    if (options.records / "http.json").exists():
        put(options.page, http_table(read_json(options.records / "http.json")), MARKS["http"])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.adaptive", description="Tokens, quality and seconds of rules of adaptive evidence.")
    made.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the directory of the collections")
    made.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS), help="these collections")
    made.add_argument("--split", choices=("dev", "test"), default="dev", help="whose queries")
    made.add_argument(
        "--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="these settings, and the fixed budget"
    )
    made.add_argument("--queries", type=int, default=100, help="dev queries of each collection, a fixed sample")
    made.add_argument("--depth", type=int, default=30, help="candidates of a query, the first stage's best")
    made.add_argument("--bundle", type=Path, default=DEFAULT, help="whose pipeline and model")
    made.add_argument("--provider", default="auto", help="computes the model")
    made.add_argument("--threads", type=int, default=1, help="of the model")
    made.add_argument("--http", action="store_true", help="only ask two services in turns")
    made.add_argument("--requests", type=int, default=20, help="with --http, to each service for each collection")
    made.add_argument("--kept", type=Path, default=Path("runs") / "adaptive", help="where logits are kept")
    made.add_argument("--records", type=Path, default=ROOT / "docs" / "results" / "adaptive", help="where measurements go")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "adaptive.md", help="a page with places for the tables")
    made.add_argument("--publish", action="store_true", help="only write the tables of what is measured into --page")
    return made


def main(options: argparse.Namespace) -> None:
    """Publish, time services or measure, as the options say."""
    options.records.mkdir(parents=True, exist_ok=True)
    if options.publish:
        publish(options)
    elif options.http:
        compare_services(options)
    else:
        measure_all(options)


if __name__ == "__main__":
    main(parser().parse_args())
