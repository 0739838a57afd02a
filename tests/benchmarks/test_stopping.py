"""Stopping by a bound or a judge: worked examples of where they stop and what they learn, and the tables."""

import argparse
import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import stopping
from benchmarks.stopping import RULE, Border, Bound, Orders, Request
from keyblock.bundle import load_bundle
from keyblock.cascade import Cascade, Promise
from keyblock.runtime.model import GraphModel
from tests.benchmarks.conftest import ANSWER, QUIET, write
from training.collections.collection import Collection
from training.examples.preparation import Preparation

AS_PROMISED = Bound(np.asarray([0, 0, 0, 0, 0, 1.0, 0]))  # the bound of a document is what the fusion promises
CASCADE = Cascade(share=0.2, per_result=1, least=1, promise=Promise(rare_here=1.0))


def request(fused: list[float], promise: list[float] | None = None, rare: list[float] | None = None) -> Request:
    features = np.zeros((len(fused), 5))
    features[:, -1] = fused if rare is None else rare
    named = [f"{number}" for number in range(len(fused))]
    return Request("q", named, features, np.asarray(fused if promise is None else promise), np.asarray(fused))


def in_order(one: Request) -> NDArray[np.intp]:
    return np.arange(len(one.names))


def test_the_model_stops_where_no_unread_document_can_be_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two documents a batch. After the first the best has 5 and an unread one may have 6; after the second, 7 and 4."""
    monkeypatch.setattr(stopping, "BATCH", 2)
    one = request([5, 1, 7, 2, 3, 0], promise=[9, 8, 6, 5, 4, 1])
    borders = list(AS_PROMISED.borders(one, in_order(one), 1))
    assert borders == [Border(2, -1, False), Border(4, 3, True)]
    assert stopping.stops_at(AS_PROMISED, 0, one, in_order(one), 1) == 4
    assert stopping.stops_at(AS_PROMISED, 3, one, in_order(one), 1) == 6, "the lead has to exceed the slack"
    three = list(AS_PROMISED.borders(one, in_order(one), 3))
    assert three == [Border(4, -2, False)], "two are too few for three results; the third of four has 2, and is behind the fifth"
    assert stopping.at_once(in_order, 3)(one).tolist() == [True] * 5 + [False]


def test_with_the_slack_few_requests_miss_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine requests of two documents. The best comes last; before it, the bound leads by 1 to 9."""
    monkeypatch.setattr(stopping, "BATCH", 1)
    requests = [request([lead, 10.0], promise=[0.0, 0.0]) for lead in range(1, 10)]
    slacks = [stopping.slack(requests, in_order, 1, missed, AS_PROMISED) for missed in (0.3, 0.1, 0.05)]
    assert slacks == [7, 9, np.inf], "8, 9 and a new one miss; a new one; nine are too few for 5%"
    assert stopping.slack([request([10.0, 1.0])] * 9, in_order, 1, 0.1, AS_PROMISED) == -np.inf, "the first document is the result"


def test_a_judge_learns_when_all_results_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a best score of 9 nothing better follows; after 4 or less something does."""
    monkeypatch.setattr(stopping, "BATCH", 1)
    easy, hard = request([9.0, 2, 1], rare=[0.0] * 3), request([4.0, 1, 8], rare=[0.0] * 3)
    judge = stopping.fit_judge([easy, hard] * 10, in_order, 1, AS_PROMISED, Promise(rare_here=1.0))
    reads = [stopping.stops_at(judge, 0, one, in_order(one), 1) for one in (easy, hard)]
    assert reads == [1, 3]
    assert [border.complete for border in judge.borders(hard, in_order(hard), 1)] == [False, False]


def test_the_bound_is_above_95_percent_of_the_scores() -> None:
    """Scores are three times the promise plus up to 1, uniformly: for 95% of them plus at most .95."""
    drawn = np.random.default_rng(0)
    promise = drawn.normal(size=4000)
    one = request((3 * promise + drawn.uniform(size=4000)).tolist(), promise=promise.tolist(), rare=[0.0] * 4000)
    weights = stopping.fit_bound([one, request([-np.inf])]).weights
    assert weights[[5, 6]] == pytest.approx([3, 0.95], abs=0.02)
    assert not weights[:5].any()


def test_orders_by_either_promise_and_by_both_in_turns() -> None:
    orders = Orders(CASCADE)
    one = request([0, 0, 0, 0], promise=[4, 3, 2, 1], rare=[1, 2, 3, 4])
    assert orders.fusion(one).tolist() == [0, 1, 2, 3]
    assert orders.learned(one).tolist() == [3, 2, 1, 0]
    assert orders.both(one).tolist() == [3, 0, 2, 1]
    with pytest.raises(ValueError, match="learned no promise"):
        Orders(Cascade())


def test_the_cascade_reads_documents_above_the_bar_by_either_promise() -> None:
    one = request([0.0] * 10, promise=[9, 8, *range(8)], rare=[*range(8), 18, 19])
    assert np.flatnonzero(stopping.by_rule(CASCADE, 1)(one)).tolist() == [0, 1, 8, 9]
    assert np.flatnonzero(stopping.by_rule(CASCADE.model_copy(update={"promise": None}), 1)(one)).tolist() == [0, 1]


def test_unread_documents_follow_by_the_fusions_promise() -> None:
    one = request([1, 3, 9, 9], promise=[0, 0, 1, 2])
    run = stopping.ranked(one, np.asarray([True, True, False, False]))
    assert sorted(run, key=lambda name: -run[name]) == ["1", "0", "3", "2"]


@pytest.fixture
def options(flood: Collection, tmp_path: Path) -> argparse.Namespace:
    made = stopping.parser().parse_args(["--data", str(flood.path.parent), "--kept", str(tmp_path / "kept"), "--results", "1"])
    made.collections, made.provider = [flood.path.name], "cpu"
    return made


def test_requests_are_read_as_they_were_written(tmp_path: Path) -> None:
    given = [request([1.0, -np.inf]), request([2.0])._replace(query="r")]
    stopping.write(given, tmp_path / "some" / "kept.npz")
    found = stopping.read(tmp_path / "some" / "kept.npz")
    assert [(one.query, one.names, one.fused.tolist()) for one in found] == [("q", ["0", "1"], [1.0, -np.inf]), ("r", ["0"], [2.0])]
    assert [one.features.shape for one in found] == [(2, 5), (1, 5)]


def test_the_model_scores_the_most_promising_documents(flood: Collection) -> None:
    """With room for one document the model scores the one with the answer, which promises most; with room for three, all."""
    texts = {"a": flood.documents["a"].text, "b": QUIET, "c": f"{QUIET} A bridge."}
    write(flood.path / "corpus.jsonl.gz", [{"_id": name, "title": "", "text": text} for name, text in texts.items()])
    bundle = load_bundle(stopping.DEFAULT)
    preparation, model = Preparation(Collection(flood.path), bundle.pipeline), GraphModel.open(bundle, "cpu", 1)
    one, three = (stopping.score_request(preparation, "q", ["b", "c", "a"], model, first) for first in (1, 3))
    assert np.flatnonzero(np.isfinite(one.fused)).tolist() == [2]
    assert np.isfinite(three.fused).all()
    assert three.fused.argmax() == 2
    assert three.fused[2] == pytest.approx(one.fused[2], abs=1e-4)


def test_kept_scores_are_not_computed_again(
    options: argparse.Namespace, flood: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    options.hurried = True
    stopping.gather(options)
    (one,) = stopping.read(stopping.kept_path(options, flood.path.name, "dev"))
    assert (one.query, one.names) == ("q", ["a", "b"])
    monkeypatch.setattr(GraphModel, "open", None)
    stopping.gather(options)


def test_another_sample_is_kept_elsewhere(options: argparse.Namespace) -> None:
    """The scores of three queries must not stand in for those of all."""
    default = stopping.kept_path(options, "flood", "dev")
    for name, value in {"bundle": Path("other"), "queries": 3, "depth": 5, "seconds": 20.0}.items():
        other = argparse.Namespace(**{**vars(options), name: value})
        assert stopping.kept_path(other, "flood", "dev") != default, name


def test_two_queries_are_scored_however_short_the_time(
    options: argparse.Namespace, flood: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paired test needs at least two queries."""
    monkeypatch.setattr(stopping, "first_stage_run", lambda *_: {name: {"a": 2.0} for name in "qrs"})
    monkeypatch.setattr(stopping, "score_request", lambda *arguments: arguments[1])
    preparation = Preparation(flood, load_bundle(stopping.DEFAULT).pipeline)
    for seconds, queries in {-1: ["q", "r"], 1e9: ["q", "r", "s"]}.items():
        options.seconds = seconds
        assert list(stopping.score_sample(preparation, "dev", None, options)) == queries  # type: ignore[arg-type, comparison-overlap]


def test_the_tables(options: argparse.Namespace, flood: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal queries. The fusion promises more of `b` than of the answer `a`: reading one document in its order misses `a`."""
    monkeypatch.setattr(stopping, "BATCH", 1)
    monkeypatch.setattr(stopping, "FIRST", (1,))
    monkeypatch.setattr(stopping, "HURRIED", (1,))
    write(flood.path / "queries.jsonl.gz", [{"_id": name, "text": ANSWER} for name in "qr"])
    (flood.path / "qrels.tsv.gz").write_bytes(gzip.compress(b"q\t0\ta\t1\nr\t0\ta\t1\n"))
    both = [request([5, 1], promise=[1, 2], rare=[2, 1])._replace(query=name, names=["a", "b"]) for name in "qr"]
    for split in ("train", "dev"):
        stopping.write(both, stopping.kept_path(options, flood.path.name, split))
    bundle = load_bundle(stopping.DEFAULT)
    rows = [line.strip("| ").split(" | ") for line in stopping.compare_stops(options, bundle).splitlines()[2:]]
    found = {row[3]: row[4:] for row in rows}
    assert found[RULE] == ["2.0", "100.0%", "+0.0000", "1", "+0.0000", "1"]
    assert found["the first 1"][:3] == ["1.0", "100.0%", "+0.0000"], "in turns the learned promise comes first"
    assert (found["bound, 2%"][0], found["judged, 2%"][0]) == ("2.0", "2.0"), "two requests teach no slack"
    assert not any(label.endswith("without it") for label in found), "there is no other collection"
    options.hurried = True
    stopping.write(both, stopping.kept_path(options, flood.path.name, "dev"))
    fusion, learned, in_turns = (
        line.strip("| ").split(" | ")[3:] for line in stopping.compare_orders(options, bundle).splitlines()[2:]
    )
    assert fusion[:2] == ["the fusion's promise", "0.6309"]
    assert learned[:2] == ["the learned promise", "+0.3691"]
    assert in_turns[:2] == ["both in turns", "+0.3691"]
