"""Adaptive evidence measured: what is missing, what is kept, the tables, and the tokens of a small bundle."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import adaptive
from benchmarks.adaptive import CHOSEN, FIXED
from benchmarks.cascade import Remembering
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from training.collections.collection import Collection
from training.evaluation.records import Record, read_records, write_record
from training.examples.preparation import Preparation


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    made = adaptive.parser().parse_args(
        ["--records", str(tmp_path / "adaptive"), "--kept", str(tmp_path / "kept"), "--threads", "1"]
    )
    made.records.mkdir()
    return made


def write(options: argparse.Namespace, system: str, collection: str, split: str, tokens: float, values: list[float]) -> None:
    queries = [f"q{number}" for number in range(len(values))]
    details = {"depth": 30, "tokens": tokens}
    measured = dict.fromkeys(adaptive.MEASURES, values)
    place = adaptive.cell(collection, split)
    write_record(
        Record(system=system, collection=place, split=split, queries=queries, values=measured, details=details), options.records
    )


def test_the_fixed_budget_is_always_due_and_first(options: argparse.Namespace) -> None:
    options.only = [CHOSEN]
    assert list(adaptive.missing("qmsum", options)) == [FIXED, CHOSEN]
    write(options, FIXED, "qmsum", "dev", 128, [1, 0])
    assert list(adaptive.missing("qmsum", options)) == [CHOSEN]
    options.split = "test"
    assert list(adaptive.missing("qmsum", options)) == [FIXED, CHOSEN]


def test_the_dev_table_says_what_differs(options: argparse.Namespace) -> None:
    """Half of the tokens for .25 less; a quarter less, of two collections .75 and .5 of the tokens, is 62% in the mean."""
    for collection, tokens in (("qmsum", 96), ("evidence", 64)):
        write(options, FIXED, collection, "dev", 128, [1, 0.5])
        write(options, CHOSEN, collection, "dev", tokens, [0.5, 0.5])
    fixed, chosen = adaptive.table(read_records(options.records), "dev").splitlines()[2:]
    assert fixed == f"| {FIXED} | 128 | 0.7500 | 0.7500 | 128 | 0.7500 | 0.7500 | 100% |"
    assert chosen == f"| {CHOSEN} | 96 | -0.2500 | -0.2500 | 64 | -0.2500 | -0.2500 | 62% |"


def test_the_test_table_has_p_and_interval(options: argparse.Namespace) -> None:
    write(options, FIXED, "qmsum", "test", 128, [0.5, 0.5, 0.5, 0.5])
    write(options, CHOSEN, "qmsum", "test", 96, [0.6, 0.7, 0.6, 0.7])
    chosen = adaptive.table(read_records(options.records), "test").splitlines()[3]
    assert chosen.startswith(f"| qmsum | 4 | {CHOSEN} | 96.0 (75%) | 0.6500 | +0.1500 (+0.0581 to +0.2419) | 0.028 |")


def test_kept_logits_come_back(tmp_path: Path) -> None:
    known = {np.asarray(ids, np.int32).tobytes(): np.float32(logit) for ids, logit in (([101, 7, 102], 0.5), ([101, 102], -2))}
    assert adaptive.read_kept(tmp_path / "none.npz") == {}
    for expected in (known, {}):
        adaptive.write_kept(expected, tmp_path / "a" / "kept.npz")
        assert adaptive.read_kept(tmp_path / "a" / "kept.npz") == expected


def test_a_rule_feeds_fewer_tokens_and_what_was_scored_is_not_scored_again(
    options: argparse.Namespace, flood: Collection, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer stands in one block of one document, so that either is read by one block of at most 63 tokens."""
    bundle = load_bundle(adaptive.DEFAULT)
    model, prepared = Remembering(GraphModel.open(bundle, "cpu", 1)), Preparation(flood, bundle.pipeline)
    for name in (FIXED, CHOSEN):
        adaptive.measure(name, prepared, bundle, model, options)
    found = {record.system: record for record in read_records(options.records)}
    assert [record.means["RR@10"] for record in found.values()] == [1.0, 1.0]
    assert found[FIXED].details["tokens"] == 128
    assert found[CHOSEN].details["tokens"] < 80
    assert len(model.known) == 4
    adaptive.measure(CHOSEN, prepared, bundle, model, options)
    assert len(model.known) == 4
    assert f"flood {FIXED}: 128.0 tokens, 1.0000" in capsys.readouterr().out


def test_the_copy_has_the_rule_and_nothing_else_changed(tmp_path: Path) -> None:
    bundle = load_bundle(adaptive.DEFAULT)
    copy = adaptive.with_rule(bundle, CHOSEN, tmp_path / "copy").manifest
    packing = bundle.manifest.pipeline.packing
    assert copy.pipeline.packing.adaptive == {"name": "relative", "blocks": 1, "tokens": 0, "promise": 0.5, "ratio": 0.3}
    assert (copy.pipeline.packing.budget, copy.pipeline.packing.budget_range) == (192, (96, 192))
    assert copy.pipeline.cascade is None, "every document is read"
    kept = {"packing": packing, "cascade": bundle.manifest.pipeline.cascade}
    assert copy.pipeline.model_copy(update=kept) == bundle.manifest.pipeline
    assert copy.files == bundle.manifest.files


def test_seconds_are_reported_as_a_ratio(flood: Collection, options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service with the rule takes half of the time and three quarters of the tokens; which comes first, changes in turns."""
    asked = []

    def ask(url: str, body: bytes) -> adaptive.Timing:
        asked.append(url)
        assert set(json.loads(body)) == {"query", "documents"}
        return {"fixed": adaptive.Timing(0.5, 0.4, 1000), "rule": adaptive.Timing(0.25, 0.1, 750)}[url]

    monkeypatch.setattr(adaptive, "ask", ask)
    monkeypatch.setattr(adaptive, "sample", lambda queries, count: [*queries] * count)
    options.data, options.requests = flood.path.parent, 2
    row = adaptive.in_turns("flood", ["fixed", "rule"], options)
    assert asked[2:4] == ["rule", "fixed"]
    assert asked[6:8] == ["fixed", "rule"]
    table = adaptive.http_table({"flood": row, "threads": 1, "depth": 30})
    assert table.splitlines()[2:] == ["| flood | 2 | 0.500 | 0.250 | 0.50 | 0.25 | 0.75 |"]
