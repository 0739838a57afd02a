"""Evaluation: figures by hand, baselines, gold passages, files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from ir_measures import RR, P

from training.collection import Collection
from training.evaluation import (
    Evaluation,
    baselines,
    evaluate,
    gold_hits,
    read_system,
    read_values,
    sample,
    summary,
    system_name,
    table,
    write_evaluation,
    write_values,
)
from training.lines import FileError
from training.ranking import Ranker, Reranked
from training.runs import read_run

QUERIES = ["teacher?", "letter?", "forest?"]


@dataclass
class Reversing(Ranker):
    """Turns the first stage round; on the toy that puts the answer first. Its blocks are the first hundred characters."""

    name: str = "reversing"

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        return Reranked({d: float(-i) for i, d in enumerate(reversed(candidates))}, {d: [(0, 100)] for d in candidates})


@pytest.fixture(scope="module")
def evaluation(toy: Collection) -> Evaluation:
    return evaluate(Reversing(), toy, QUERIES, toy.run("dev"), progress=False)


def test_every_query_is_ranked_and_measured(evaluation: Evaluation, toy: Collection) -> None:
    assert list(evaluation.run) == QUERIES
    assert [next(iter(scores)) for scores in evaluation.run.values()] == ["teacher-3", "letter-3", "forest-3"]
    assert evaluation.values == {"RR@10": dict.fromkeys(QUERIES, 1.0), "nDCG@10": dict.fromkeys(QUERIES, 1.0)}
    assert len(evaluation.seconds) == 3


@pytest.mark.parametrize("workers", [1, 4])
def test_a_query_without_candidates_scores_zero(toy: Collection, workers: int) -> None:
    candidates = {"teacher?": toy.run("dev")["teacher?"], "letter?": {}}
    found = evaluate(Reversing(), toy, QUERIES, candidates, workers, progress=False)
    assert found.values["RR@10"] == {"teacher?": 1.0, "letter?": 0.0, "forest?": 0.0}
    assert list(found.run) == ["teacher?"]


def test_figures_of_a_summary(evaluation: Evaluation, toy: Collection) -> None:
    figures = summary(evaluation, toy, "dev")
    assert figures["seconds_per_query"] >= 0
    assert figures | {"seconds_per_query": 0} == {
        "system": "reversing",
        "collection": "toy",
        "split": "dev",
        "queries": 3,
        "measures": {"RR@10": 1.0, "nDCG@10": 1.0},
        "gold_in_best_blocks": 0.0,
        "queries_with_gold_among_candidates": len(evaluation.gold_hits),
        "seconds_per_query": 0,
    }
    nothing = evaluate(Reversing(), toy, QUERIES, {}, progress=False)
    assert summary(nothing, toy, "dev")["seconds_per_query"] is None
    assert nothing.gold_share is None


def test_gold_hits_by_hand(toy: Collection) -> None:
    """The gold passage must overlap one of its document's three best blocks, by one character at least."""
    (gold,) = toy.spans["river?"]
    far = (gold.end + 100, gold.end + 200)

    def hit(*blocks: tuple[int, int], document: str = "river-3") -> dict[str, bool]:
        found = {"river?": Reranked({document: 1.0}, {document: list(blocks)})}
        return gold_hits(toy, found, {"river?": {document: 1.0}})

    assert hit((gold.start, gold.end)) == {"river?": True}
    assert hit(far, far, (gold.end - 1, gold.end + 9)) == {"river?": True}
    assert hit(far, far, far, (gold.start, gold.end)) == {"river?": False}
    assert hit((gold.end, gold.end + 9), (0, gold.start)) == {"river?": False}
    assert hit() == {"river?": False}
    assert hit((0, 9999), document="river-0") == {}  # not among the candidates: nothing to find


def test_a_query_without_a_gold_passage_is_left_out(toy: Collection) -> None:
    found = {"river!": Reranked({"river-3": 1.0}, {"river-3": [(0, 9999)]})}
    assert gold_hits(toy, found, {"river!": {"river-3": 1.0}}) == {}


def test_baselines(toy: Collection) -> None:
    """First stage: the answer is last of four. Shuffled: the mean of 1, 1/2, 1/3, 1/4 is 25/48."""
    queries = toy.split("dev")
    systems = baselines(toy, queries, toy.run("dev"))
    assert systems["first stage"]["RR@10"] == dict.fromkeys(queries, 0.25)
    shuffled = systems["shuffled"]["RR@10"]
    assert list(shuffled) == queries
    assert sum(shuffled.values()) / len(queries) == pytest.approx(25 / 48, abs=0.12)
    assert baselines(toy, queries, toy.run("dev")) == systems
    assert baselines(toy, ["sea?", *queries], toy.run("dev"), [P @ 1])["shuffled"]["P@1"]["sea?"] == 0.0


def test_the_table_by_hand() -> None:
    """A difference of 1 and 0.5 in two queries: t = 3 with one degree of freedom."""
    systems = {
        "new": {"RR@10": {"a": 1.0, "b": 0.5}},
        "old": {"RR@10": {"a": 0.0, "b": 0.0}},
        "same": {"RR@10": {"a": 1.0, "b": 0.5}},
    }
    p = 1 - 2 / math.pi * math.atan(3)
    assert table(systems, "new").splitlines() == [
        "| system | RR@10 | p |",
        "| --- | --- | --- |",
        "| new | 0.7500 |  |",
        f"| old | 0.0000 | {p:.2g} |",
        "| same | 0.7500 | 1 |",
    ]


def test_a_table_of_one_query_has_no_p_values() -> None:
    systems = {"new": {"RR@10": {"a": 1.0}}, "old": {"RR@10": {"a": 0.5}}}
    assert table(systems, "new").splitlines()[-1] == "| old | 0.5000 |  |"


def test_files_read_back(evaluation: Evaluation, tmp_path: Path) -> None:
    write_evaluation(evaluation, tmp_path / "deep" / "out")
    out = tmp_path / "deep" / "out"
    assert read_run(out / "run.trec.gz") == evaluation.run
    assert read_values(out / "per_query.tsv") == evaluation.values


def test_another_system_from_its_run_or_its_values(evaluation: Evaluation, toy: Collection, tmp_path: Path) -> None:
    write_evaluation(evaluation, tmp_path / "other")
    measures = [RR @ 10]
    for name in ("per_query.tsv", "run.trec.gz"):
        read = read_system(tmp_path / "other" / name, toy, QUERIES[:2], measures)
        assert read == {"RR@10": {"teacher?": 1.0, "letter?": 1.0}}


@pytest.mark.parametrize(("queries", "measure"), [([*QUERIES, "window?"], RR @ 10), (QUERIES, P @ 1)])
def test_values_measured_otherwise_are_refused(
    evaluation: Evaluation, toy: Collection, tmp_path: Path, queries: list[str], measure: object
) -> None:
    write_values(evaluation.values, tmp_path / "per_query.tsv")
    with pytest.raises(FileError, match="it was measured otherwise; give its TREC run instead"):
        read_system(tmp_path / "per_query.tsv", toy, queries, [measure])


@pytest.mark.parametrize("line", ["a b c", "q\tRR@10\thigh", "q\tRR@10\t1\t2"])
def test_bad_values_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "v.tsv"
    path.write_text(f"q\tRR@10\t1.0\n{line}\n", encoding="utf-8")
    with pytest.raises(FileError, match="line 2 must be query<TAB>measure<TAB>value"):
        read_values(path)


def test_what_systems_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert system_name(Path("results/bm25/per_query.tsv")) == "bm25"
    assert system_name(Path("results/bm25/run.trec.gz")) == "bm25"
    assert system_name(Path("results/run.dev.bm25.trec.gz")) == "run"
    monkeypatch.chdir(tmp_path)
    assert system_name(Path("per_query.tsv")) == tmp_path.name


def test_samples_are_fixed() -> None:
    queries = [f"q{i}" for i in range(50)]
    assert sample(queries, None) == sample(queries, 50) == sample(queries, 99) == queries
    assert sample(queries, 10) == sample(iter(queries), 10)
    assert len(set(sample(queries, 10))) == 10
    assert sample(queries, 10) != queries[:10]
