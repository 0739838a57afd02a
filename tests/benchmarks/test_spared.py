"""The cascade measured: what is missing, what the model reads, the tables, and requests in turns."""

import argparse
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks import spared
from benchmarks.adaptive import cell
from benchmarks.cascade import Remembering
from benchmarks.performance.texts import Source
from benchmarks.spared import ALL, BEFORE, CHOSEN
from keyblock.bundle import FORMAT_VERSION, load_bundle
from keyblock.runtime.model import GraphModel
from tests.benchmarks.conftest import QUIET
from tests.benchmarks.conftest import write as write_lines
from training.collections.collection import Collection
from training.evaluation.records import Record, read_records, write_record
from training.examples.preparation import Preparation


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    made = spared.parser().parse_args(["--records", str(tmp_path / "spared"), "--kept", str(tmp_path / "kept"), "--only", CHOSEN])
    made.records.mkdir()
    return made


def write(options: argparse.Namespace, system: str, read: float, tokens: float, values: list[float]) -> None:
    queries, measured = [f"q{number}" for number in range(len(values))], dict.fromkeys(spared.MEASURES, values)
    details = {"depth": 100, "read": read, "tokens": tokens}
    record = Record(system=system, collection=cell("qmsum", "dev"), split="dev", queries=queries, values=measured, details=details)
    write_record(record, options.records)


def test_what_is_measured_is_not_measured_again(options: argparse.Namespace) -> None:
    assert list(spared.missing("qmsum", options)) == [ALL, CHOSEN]
    write(options, ALL, 1, 128, [1, 0])
    assert list(spared.missing("qmsum", options)) == [CHOSEN]
    assert list(spared.missing("evidence", options)) == [ALL, CHOSEN]


def test_the_table_says_what_was_read_and_what_differs(options: argparse.Namespace) -> None:
    """Differences .1, .2, .1 and .2: mean .15, deviation .0577, so t is 5.2 with 3 degrees of freedom, and p .014."""
    write(options, ALL, 1, 120, [0.5, 0.5, 0.5, 0.5])
    write(options, CHOSEN, 0.2, 30, [0.6, 0.7, 0.6, 0.7])
    every, chosen = spared.table(read_records(options.records)).splitlines()[2:]
    assert every == f"| qmsum | 4 | {ALL} | 100% | 100% | 0.5000 |  | 0.5000 |  |"
    assert chosen == f"| qmsum | 4 | {CHOSEN} | 20% | 25% | +0.1500 | 0.014 | +0.1500 | 0.014 |"


def test_most_documents_are_spared_and_the_answer_is_still_first(
    options: argparse.Namespace, flood: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty documents, of which one has the answer: ten are read, and each is scored once for both settings."""
    texts = {"a": flood.documents["a"].text} | {f"{n}": f"{QUIET} A bridge{', a bridge' * n}." for n in range(29)}
    corpus = [{"_id": name, "title": "", "text": text} for name, text in texts.items()]
    write_lines(flood.path / "corpus.jsonl.gz", corpus)
    run = "".join(f"q Q0 {name} {place} {-place} bm25\n" for place, name in enumerate(texts, start=1))
    (flood.path / "run.dev.bm25.trec.gz").write_bytes(gzip.compress(run.encode()))
    bundle = load_bundle(spared.DEFAULT)
    model, prepared = Remembering(GraphModel.open(bundle, "cpu", 1)), Preparation(Collection(flood.path), bundle.pipeline)
    spared.measure(ALL, prepared, bundle, model, options)
    known = len(model.known)
    monkeypatch.setitem(spared.SETTINGS, CHOSEN, spared.best(0.2))
    spared.measure(CHOSEN, prepared, bundle, model, options)
    found = {record.system: record for record in read_records(options.records)}
    assert [record.means["RR@10"] for record in found.values()] == [1.0, 1.0]
    assert found[ALL].details["read"] == 1
    assert found[CHOSEN].details["read"] == pytest.approx(1 / 3)
    assert len(model.known) == known


def test_the_copies_differ_in_the_cascade_alone(tmp_path: Path) -> None:
    bundle = load_bundle(spared.DEFAULT)
    every, some = (spared.with_cascade(bundle, name, tmp_path / name).manifest for name in (ALL, CHOSEN))
    assert every.pipeline.cascade is None
    assert some.pipeline.cascade is not None
    assert (some.pipeline.cascade.share, some.pipeline.cascade.margin) == (0.25, 0.2)
    assert some.pipeline.cascade.promise == bundle.pipeline.config.cascade.promise is not None
    before = spared.with_cascade(bundle, BEFORE, tmp_path / BEFORE).manifest.pipeline.cascade
    assert (before.share, before.promise) == (0.5, None), "the fusion's"
    assert some.pipeline.model_copy(update={"cascade": None}) == every.pipeline
    assert (every.format_version, every.files) == (FORMAT_VERSION, bundle.manifest.files)


@pytest.mark.parametrize("by_id", [False, True])
def test_seconds_are_reported_as_a_ratio(monkeypatch: pytest.MonkeyPatch, by_id: bool) -> None:
    """The services with a cascade take a quarter of the time; which comes first, changes in turns."""
    asked, stored = [], []

    def ask(url: str, body: bytes) -> spared.Timing:
        asked.append((url, json.loads(body)["documents"]))
        return spared.Timing(0.8, 0.6, 1000) if url == "all" else spared.Timing(0.2, 0.1, 250)

    def store(url: str, documents: Sequence[Mapping[str, str]]) -> None:
        stored.append((url, [one["id"] for one in documents]))

    monkeypatch.setattr(spared, "ask", ask)
    monkeypatch.setattr(spared, "store", store)
    source = Source(
        lambda documents, words: ["word " * words] * documents, ["flood", "river", "stone", "bridge", "old", "may", "mill"]
    )
    row = spared.in_turns(spared.Kind(2, by_id=by_id), source, ["all", "b", "c"], 2)
    assert "".join(url[0] for url, _ in asked) == "cbaabccba"
    if by_id:
        assert stored[:2] == [("all", ["0-0", "0-1"]), ("b", ["0-0", "0-1"])]
        assert asked[0][1] == [{"id": "0-0"}, {"id": "0-1"}]
    else:
        assert not stored
    table = spared.http_table({"2 documents": row, "threads": 1})
    assert table.splitlines()[2:4] == [
        f"| 2 documents | 2 | {ALL} | 0.800 | 1.00 | 1.00 | 1,000 |",
        f"| 2 documents | 2 | {BEFORE} | 0.200 | 4.00 | 6.00 | 250 |",
    ]
