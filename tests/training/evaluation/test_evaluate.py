"""Evaluation: figures by hand, baselines, gold passages, seeds, files."""

import json
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from ir_measures import RR, P

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import FileError
from training.evaluate import resources
from training.evaluate.evaluate import (
    Evaluation,
    average_seeds,
    baselines,
    evaluate,
    evaluate_run,
    gold_hits,
    gold_ranks,
    read_system,
    sample,
    summary,
    system_name,
    write_evaluation,
)
from training.evaluate.measures import mean_over_seeds, seed_runs
from training.evaluate.ranking import HttpRanker, LocalRanker, Ranker, Reranked
from training.evaluate.resources import Memory, peak_memory, resident_mb

QUERIES = ["teacher?", "letter?", "forest?"]


@dataclass
class Reversing(Ranker):
    """Turns the first stage round; on the toy that puts the answer first. Its blocks are the first hundred characters."""

    name: str = "reversing"

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        return Reranked({d: float(-i) for i, d in enumerate(reversed(candidates))}, {d: [(0, 100)] for d in candidates})


@pytest.fixture(scope="module")
def evaluation(toy: Collection) -> Evaluation:
    return evaluate(Reversing(), toy, QUERIES, toy.run("dev"))


def test_every_query_is_ranked_and_measured(evaluation: Evaluation, toy: Collection) -> None:
    assert list(evaluation.run) == QUERIES
    assert [next(iter(scores)) for scores in evaluation.run.values()] == ["teacher-3", "letter-3", "forest-3"]
    assert evaluation.values == {"RR@10": dict.fromkeys(QUERIES, 1.0), "nDCG@10": dict.fromkeys(QUERIES, 1.0)}
    assert len(evaluation.seconds) == 3
    assert evaluation.documents == [4, 4, 4]
    assert evaluation.blocks == {q: {d: [(0, 100)] for d in toy.run("dev")[q]} for q in QUERIES}


@pytest.mark.parametrize("workers", [1, 4])
def test_a_query_without_candidates_scores_zero(toy: Collection, workers: int) -> None:
    candidates = {"teacher?": toy.run("dev")["teacher?"], "letter?": {}}
    found = evaluate(Reversing(), toy, QUERIES, candidates, workers)
    assert found.values["RR@10"] == {"teacher?": 1.0, "letter?": 0.0, "forest?": 0.0}
    assert list(found.run) == ["teacher?"]


def test_figures_of_a_summary(evaluation: Evaluation, toy: Collection) -> None:
    evaluation = replace(evaluation, seconds=[0.4, 0.1, 0.3], documents=[4, 2, 4], memory=Memory(900.0, None))
    assert summary(evaluation, toy, "dev") == {
        "system": "reversing",
        "collection": "toy",
        "split": "dev",
        "queries": 3,
        "measures": {"RR@10": 1.0, "nDCG@10": 1.0},
        "gold_in_best_blocks": 0.0,
        "queries_with_gold_among_candidates": len(evaluation.gold_hits),
        "seeds": 1,
        "seconds_per_query": 0.3,
        "ms_per_document": pytest.approx(75),  # of 100, 50 and 75
        "mean_ms_per_document": pytest.approx(80),
        "peak_rss_mb": 900.0,
        "peak_cuda_mb": None,
    }
    nothing = evaluate(Reversing(), toy, QUERIES, {})
    figures = summary(nothing, toy, "dev")
    assert (figures["seconds_per_query"], figures["ms_per_document"], figures["mean_ms_per_document"]) == (None, None, None)
    assert nothing.gold_share is None


def test_gold_by_hand(toy: Collection) -> None:
    """The gold passage must overlap one of its document's three best blocks, by one character at least."""
    (gold,) = toy.spans["river?"]
    far, near, beside = (gold.end + 100, gold.end + 200), (gold.end - 1, gold.end + 9), (gold.end, gold.end + 9)
    cases: list[tuple[list[tuple[int, int]], int | None]] = [
        ([near, far], 1),
        ([far, far, near], 3),
        ([far, far, far, near, near], 4),
        ([beside, (0, gold.start)], None),
        ([], None),
    ]
    for blocks, rank in cases:
        of_document, candidates = {"river?": {"river-3": blocks}}, {"river?": {"river-3": 1.0}}
        assert gold_ranks(toy, of_document, candidates) == {"river?": rank}
        assert gold_hits(toy, of_document, candidates) == {"river?": rank in (1, 2, 3)}
    assert gold_ranks(toy, {"river?": {}}, {"river?": ["river-3"]}) == {"river?": None}, "a document that was not returned"
    assert gold_ranks(toy, {"river?": {"river-0": [(0, 9999)]}}, {"river?": ["river-0"]}) == {}, "it is not among the candidates"
    assert gold_ranks(toy, {"river!": {"river-3": [(0, 9999)]}}, {"river!": ["river-3"]}) == {}, "it has no gold passage"


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


def test_a_service_s_memory_is_not_ours_to_measure(toy: Collection) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        documents = json.loads(request.content)["documents"]
        return httpx.Response(200, json={"results": [{"id": d["id"], "relevance_score": 0.5, "blocks": []} for d in documents]})

    client = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://service")
    found = evaluate(HttpRanker("http", toy, client), toy, QUERIES[:1], toy.run("dev"))
    assert found.memory == Memory()
    assert found.ms_per_document is not None


def test_preparing_documents_is_off_the_clock(toy: Collection, toy_pipeline: Pipeline) -> None:
    """Every candidate is prepared when the ranker is asked, and with it the clock starts."""
    asked: list[str] = []

    class Watched(Preparation):
        def document(self, doc_id: str) -> PreparedDocument:
            asked.append(doc_id)
            return super().document(doc_id)

    class Watching(LocalRanker):
        def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
            asked.append(query_id)
            return Reranked(dict.fromkeys(candidates, 0.0), {})

    unused: Any = None  # this ranker scores nothing
    evaluate(Watching("local", Watched(toy, toy_pipeline), unused), toy, QUERIES, toy.run("dev"))
    assert asked == [name for query in QUERIES for name in (*toy.run("dev")[query], query)]


def test_what_was_ranked_before_is_measured(toy: Collection) -> None:
    run = {"teacher?": {"teacher-0": 2.0, "teacher-3": 1.0}, "river?": {"river-3": 1.0}}
    found = evaluate_run("given", run, toy, QUERIES[:2], [RR @ 10])
    assert found.values == {"RR@10": {"teacher?": 0.5, "letter?": 0.0}}
    assert list(found.run) == ["teacher?"]
    assert (found.seconds, found.ms_per_document, found.memory.peak_mb) == ([], None, None)


def test_seeds_are_averaged_per_query() -> None:
    one = Evaluation("s1", {}, {"RR@10": {"a": 1.0, "b": 0.0}}, [0.2], [2], {"a": True}, Memory(700.0))
    two = Evaluation("s2", {}, {"RR@10": {"a": 0.5, "b": 0.5}}, [0.4], [2], {"a": False}, Memory(800.0))
    both = average_seeds("s", [one, two])
    assert both.values == {"RR@10": {"a": 0.75, "b": 0.25}}
    assert (both.seeds, both.gold_share, both.ms_per_document) == (2, 0.5, pytest.approx(150))
    assert both.memory == Memory(800.0)


def test_another_system_from_its_directory(evaluation: Evaluation, toy: Collection, tmp_path: Path) -> None:
    """A seed ranked the other way round gives 1/4, the mean of both is 5/8; measures need not be those of per_query.tsv."""
    write_evaluation(evaluation, tmp_path / "seeds" / "1")
    assert read_system(tmp_path / "seeds" / "1", toy, QUERIES, [P @ 1]) == {"P@1": dict.fromkeys(QUERIES, 1.0)}
    write_evaluation(replace(evaluation, run=toy.run("dev")), tmp_path / "seeds" / "2")
    assert read_system(tmp_path / "seeds", toy, QUERIES, [RR @ 10]) == {"RR@10": dict.fromkeys(QUERIES, 0.625)}
    assert system_name(tmp_path / "seeds") == "seeds"
    write_evaluation(evaluation, tmp_path / "seeds" / "seed-1")
    assert read_system(tmp_path / "seeds", toy, QUERIES, [RR @ 10]) == {"RR@10": dict.fromkeys(QUERIES, 1.0)}
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"empty: holds no run\.trec\.gz, and no directory in it does"):
        read_system(tmp_path / "empty", toy, QUERIES, [RR @ 10])


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


def make_run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "pipeline.json").write_text("{}", encoding="utf-8")
    return path


def test_a_directory_of_runs_stands_for_these_and_a_run_for_itself(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"seed-{seed}") for seed in (2, 1)]
    make_run(runs[0] / "inner")
    (tmp_path / "notes").mkdir()
    assert seed_runs(tmp_path) == sorted(runs)
    assert seed_runs(runs[0]) == [runs[0]]
    assert seed_runs(tmp_path / "nowhere") == [tmp_path / "nowhere"], "its reader says what is wrong"


@pytest.mark.parametrize("other", [{"RR@10": {"a": 1.0}}, {"RR@10": {"a": 1.0, "b": 0.0, "c": 0.0}}, {"P@1": {"a": 1.0, "b": 0.0}}])
def test_seeds_measured_otherwise_have_no_mean(other: dict[str, dict[str, float]]) -> None:
    with pytest.raises(ValueError, match="on the same queries, by the same measures"):
        mean_over_seeds([{"RR@10": {"a": 1.0, "b": 0.0}}, other])


linux = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
TAKEN = 60  # MB


def take_and_give_back() -> None:
    """Pages of our own: they go back to the system at once, as a small piece of the heap need not."""
    with mmap.mmap(-1, TAKEN * 1_000_000) as pages:
        for start in range(0, len(pages), mmap.PAGESIZE):
            pages[start] = 1


@linux
def test_memory_given_back_inside_still_counts() -> None:
    with peak_memory() as memory:
        take_and_give_back()
    now = resident_mb("VmRSS")
    assert now is not None
    assert memory.rss_mb is not None
    assert memory.rss_mb > now + TAKEN / 2


@linux
def test_memory_is_unknown_where_the_mark_cannot_be_reset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "CLEAR_REFS", tmp_path / "nowhere" / "clear_refs")
    with pytest.raises(KeyError), peak_memory() as memory:
        raise KeyError
    assert memory.rss_mb is None


def test_a_table_says_the_gpu_s_where_there_is_one() -> None:
    assert Memory(rss_mb=800.0, cuda_mb=300.0).peak_mb == 300.0
    assert Memory(rss_mb=800.0).peak_mb == 800.0
    assert Memory().peak_mb is None
