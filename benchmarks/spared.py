"""Cost and quality of the cascade: documents that the model reads, quality against reading all, and seconds through HTTP.

    python -m benchmarks.spared --data DATA             measures every setting on dev
    python -m benchmarks.spared --data DATA --http      times services in turns, with and without the cascade
    python -m benchmarks.spared --publish               writes the tables into docs/cascade.md

The program may be stopped and started again: it keeps measurements, and logits in `--kept`. A sequence is scored once, however many
settings select it. The score is the fused one, as in the service.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.adaptive import COLLECTIONS, DEFAULT, MEASURES, Timing, ask, cell, read_kept, write_kept
from benchmarks.cascade import Remembering
from benchmarks.performance.report import put
from benchmarks.performance.service import REQUEST_SECONDS, Service
from benchmarks.performance.texts import Source, collected
from benchmarks.systems import ROOT
from keyblock.bundle import FORMAT_VERSION, Bundle, load_bundle, write_bundle
from keyblock.description import PipelineConfig
from keyblock.runtime.model import GraphModel
from keyblock.scoring import Scored
from training.collections.collection import Collection
from training.collections.json_files import read_json, write_json
from training.evaluation.evaluate import evaluate, sample
from training.evaluation.ranking import LocalRanker, changed
from training.evaluation.records import Record, read_records, record_evaluation, write_record
from training.evaluation.significance import p_text, paired_t_test
from training.evaluation.tables import markdown
from training.examples.preparation import Preparation

ALL, CHOSEN = "all", "25%, margin .2"
FUSION = ", by the fusion"  # ends the name of a setting with the fusion's promise, as before a promise was learned
BEFORE = "50%, margin .2" + FUSION
SERVED = (ALL, BEFORE, CHOSEN)
QUERIES = {"squad-far": 500, "squad-articles": 100, "qmsum": 100, "evidence": 100}  # dev queries; most where the cascade loses most
MARKS = {name: f"<!-- {name}: python -m benchmarks.spared --publish writes from here -->" for name in ("dev", "http")}
WORDS = 2000


def best(share: float, margin: float = 0.0) -> dict[str, Any]:
    """A cascade that reads this share of the documents and those within the margin of the tenth, for any number of results."""
    return {"cascade": {"share": share, "per_result": 1.0, "least": 1, "margin": margin, "promise": None}}


SETTINGS: dict[str, dict[str, Any]] = {
    ALL: {"cascade": None},
    **{f"{percent}%": best(percent / 100) for percent in (20, 30)},
    CHOSEN: best(0.25, 0.2),
    **{f"{percent}%{FUSION}": best(percent / 100) for percent in (25, 30)},
    BEFORE: best(0.5, 0.2),
}


def changes(setting: str, config: PipelineConfig) -> dict[str, Any]:
    """The changes of a pipeline for a setting; the promise is the learned one of the pipeline's cascade, or the fusion's."""
    change = SETTINGS[setting]
    if change["cascade"] is None or config.cascade is None or setting.endswith(FUSION):
        return change
    return change | {"cascade": change["cascade"] | {"promise": config.cascade.promise}}


@dataclass
class Reading(LocalRanker):
    """Counts the documents and tokens that the model reads.

    Attributes:
        documents: documents ranked so far.
        read: how many of these the model has read.
        tokens: tokens that the model has read.
    """

    documents: int = 0
    read: int = 0
    tokens: int = 0

    def score(self, query_id: str, candidates: Sequence[str], budget: int | None = None, results: int | None = None) -> Scored:
        """See LocalRanker."""
        scored = super().score(query_id, candidates, budget, results)
        self.documents += len(candidates)
        self.read += sum(bool(one.sequences) for one in scored.selections)
        self.tokens += sum(len(packed.ids) for one in scored.selections for packed in one.sequences)
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
    print(table(read_records(options.records)))


def missing(collection: str, options: argparse.Namespace) -> Iterator[str]:
    """The settings that are not measured yet."""
    found = {(record.collection, record.system) for record in read_records(options.records)}
    yield from (name for name in SETTINGS if name in (ALL, *options.only) and (cell(collection, "dev"), name) not in found)


def measure(setting: str, prepared: Preparation, bundle: Bundle, model: Remembering, options: argparse.Namespace) -> None:
    """Measure one setting on a fixed sample of dev. All settings share the bundle's prepared documents."""
    collection = prepared.collection
    run = collection.run("dev")
    queries = sample(sorted(run), options.queries or QUERIES.get(collection.name))
    candidates = {query: dict(list(run[query].items())[: options.depth]) for query in queries}
    pipeline = changed(bundle.pipeline, changes(setting, bundle.pipeline.config), bundle.path)
    ranker = Reading(setting, Preparation(collection, pipeline, lambda one: prepared.document(one.doc_id)), model)
    evaluation = evaluate(ranker, collection, queries, candidates, progress=False)
    details = {"depth": options.depth, "read": ranker.read / ranker.documents, "tokens": ranker.tokens / ranker.documents}
    record = record_evaluation(evaluation, cell(collection.name, "dev"), "dev", details=details, ms_per_document=None)
    write_record(record, options.records)
    print(f"{collection.name} {setting}: {details['read']:.0%} read, {record.means['nDCG@10']:.4f}", flush=True)


def table(records: Sequence[Record]) -> str:
    """A row for each setting and collection: documents and tokens read, nDCG@10 and RR@10 against reading all, with p."""
    found = {(record.collection, record.system): record for record in records}
    places = [cell(name, "dev") for name in COLLECTIONS if (cell(name, "dev"), ALL) in found]
    head = ["dev", "queries", "the model reads", "documents", "tokens", *(part for m in MEASURES for part in (m, "p"))]
    rows = [row(found[place, name], found[place, ALL]) for place in places for name in SETTINGS if (place, name) in found]
    return markdown([head, *rows])


def row(own: Record, full: Record) -> list[str]:
    """The cells of one setting: the means of reading all, or the differences from them."""
    cells = [own.collection.split(",")[0], f"{len(own.queries)}", own.system, f"{own.details['read']:.0%}"]
    cells.append(f"{own.details['tokens'] / full.details['tokens']:.0%}")
    if own.system == ALL:
        return [*cells, *(part for m in MEASURES for part in (f"{own.means[m]:.4f}", ""))]
    tests = ((m, paired_t_test(own.by_query[m], full.by_query[m])) for m in MEASURES)
    return [*cells, *(part for m, p in tests for part in (f"{own.means[m] - full.means[m]:+.4f}", p_text(p)))]


def compare_services(options: argparse.Namespace) -> None:
    """Send the same requests in turns to a service that reads all documents and to services with a cascade; write the figures."""
    source = collected(options.data / "squad-articles")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        bundle = load_bundle(options.bundle)
        urls = []
        for number, name in enumerate(SERVED):
            copy, log, kept = (Path(folder) / f"{number}{end}" for end in ("", ".log", ".store"))
            path = with_cascade(bundle, name, copy).path
            urls.append(running.enter_context(Service(options.threads, log, bundle=path, store=kept, cache_bytes=0)).url)
        rows = {name: in_turns(kind, source, urls, options.requests) for name, kind in KINDS.items()}
    write_json(options.records / "http.json", rows | {"threads": options.threads})
    print(http_table(rows))


def with_cascade(bundle: Bundle, setting: str, path: Path) -> Bundle:
    """A copy of the bundle with a setting's cascade."""
    pipeline = changed(bundle.pipeline, changes(setting, bundle.pipeline.config), bundle.path).config
    files = {name: bundle.path / name for name in bundle.manifest.files}
    update = {"format_version": FORMAT_VERSION, "pipeline": pipeline}
    return write_bundle(path, bundle.manifest.model_copy(update=update), files)


class Kind(NamedTuple):
    """A kind of request: the number of new documents, and whether they are stored before or sent as texts."""

    documents: int
    by_id: bool


KINDS = {
    "1 document, as text": Kind(1, by_id=False),
    "100 documents, as texts": Kind(100, by_id=False),
    "100 documents, by id": Kind(100, by_id=True),
}


def in_turns(kind: Kind, source: Source, urls: Sequence[str], rounds: int) -> dict[str, Any]:
    """Time the services on new documents: medians of each service, and of the ratios to the first within each round."""
    timed: list[list[Timing]] = []
    for number in range(rounds + 1):
        request = source.request(kind.documents, WORDS)
        documents: Sequence[Any] = request.documents
        if kind.by_id:
            stored = [{"id": f"{number}-{place}", "text": text} for place, text in enumerate(documents)]
            documents = [{"id": one["id"]} for one in stored]
            for url in urls:
                store(url, stored)
        body = json.dumps({"query": request.query, "documents": documents, "top_n": 10}).encode()
        turn = {url: ask(url, body) for url in (urls if number % 2 else urls[::-1])}
        timed.append([turn[url] for url in urls])
    services = list(zip(*timed[1:], strict=True))  # the first round warms up
    found: dict[str, Any] = {"requests": rounds}
    for what in Timing._fields:
        found[what] = [statistics.median(getattr(one, what) for one in timings) for timings in services]
    for what in ("seconds", "model"):
        pairs = ([getattr(a, what) / getattr(b, what) for a, b in zip(services[0], one, strict=True)] for one in services)
        found[f"{what}_ratio"] = [statistics.median(ratios) for ratios in pairs]
    return found


def store(url: str, documents: Sequence[Mapping[str, str]]) -> None:
    """Store documents. Raises httpx.HTTPError if the service refuses."""
    lines = "".join(json.dumps(one) + "\n" for one in documents)
    httpx.put(f"{url}/documents", content=lines.encode(), timeout=REQUEST_SECONDS).raise_for_status()


def http_table(rows: Mapping[str, Any]) -> str:
    """A row for each kind of request and service."""
    head = ["", "requests", "the model reads", "seconds", "times as fast", "of the model", "tokens"]
    measured = [(name, row) for name, row in rows.items() if isinstance(row, dict)]
    return markdown([head, *([name, *cells] for name, row in measured for cells in http_cells(row))])


def http_cells(row: Mapping[str, Any]) -> Iterator[list[str]]:
    """The cells of one kind of request: a row for each service."""
    columns = (row[name] for name in ("seconds", "seconds_ratio", "model_ratio", "tokens"))
    for name, seconds, times, of_model, tokens in zip(SERVED, *columns, strict=True):
        yield [f"{row['requests']}", name, f"{seconds:.3f}", f"{times:.2f}", f"{of_model:.2f}", f"{tokens:,.0f}"]


def publish(options: argparse.Namespace) -> None:
    """Write the tables of all measurements into the page."""
    put(options.page, table(read_records(options.records)), MARKS["dev"])
    if (kept := options.records / "http.json").exists():
        put(options.page, http_table(read_json(kept)), MARKS["http"])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.spared", description="Documents read, quality and seconds of the cascade.")
    made.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the directory of the collections")
    made.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS), help="these collections")
    made.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="these settings, beside all")
    made.add_argument(
        "--queries", type=int, help="dev queries of each collection, a fixed sample; as docs/cascade.md has when left out"
    )
    made.add_argument("--depth", type=int, default=100, help="candidates of a query, the first stage's best")
    made.add_argument("--bundle", type=Path, default=DEFAULT, help="whose pipeline and model")
    made.add_argument("--provider", default="auto", help="computes the model")
    made.add_argument("--threads", type=int, default=1, help="of the model")
    made.add_argument("--http", action="store_true", help="only ask services in turns")
    made.add_argument("--requests", type=int, default=9, help="with --http, of each kind to each service")
    made.add_argument("--kept", type=Path, default=Path("runs") / "spared", help="where logits are kept")
    made.add_argument("--records", type=Path, default=ROOT / "docs" / "results" / "spared", help="where measurements go")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "cascade.md", help="a page with places for the tables")
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
