"""The pre-ranking in the service: what is skipped, who gets what, and that a bar at the bottom changes nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from keyblock.pre_ranking import PreRanking, Prior
from keyblock.ranker import Ranker
from keyblock.ranking.order import Candidate
from service.call import Call
from service.queue.graphs import GraphScorer, Priority
from service.queue.job import Scored
from service.settings import Settings
from tests.service.conftest import rerank, warm
from tests.service.rankers import another

QUERY = "who built the old stone bridge"
ANSWERS = [f"The old stone bridge was built by {who}." for who in ("monks", "the king")]
OTHERS = [f"The {what} of the city was never near the river." for what in "garden mill tower school market port wall gate".split()]
TEXTS = [*OTHERS[:5], *ANSWERS, *OTHERS[5:]]  # the answers are 5 and 6
MANY = [*OTHERS, *(f"The old stone bridge was built by monks{', a bridge' * number}." for number in range(12)), *OTHERS]
RULE = PreRanking(share=0.3, per_result=1.0, least=1)  # 3 of 10


@pytest.fixture(scope="module")
def skipping_path(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return another(bundle_path, tmp_path_factory.mktemp("pre_ranking") / "bundle", "skipping", pre_ranking=RULE)


@pytest.fixture(scope="module")
def skipping(settings: Settings, skipping_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose model reads three of ten documents, with a store."""
    store = str(tmp_path_factory.mktemp("store") / "documents")
    with warm(settings.model_copy(update={"bundle": (skipping_path,), "store": store})) as client:
        yield client


def ask(client: TestClient, documents: list[Any], **options: Any) -> dict[str, Any]:
    return rerank(client, query=QUERY, documents=documents, **options)


def by_model(answer: dict[str, Any]) -> list[int]:
    return [result["index"] for result in answer["results"] if "scored_by" not in result]


def test_the_model_reads_what_promises_most_and_the_rest_follows(client: TestClient, skipping: TestClient) -> None:
    """Both documents that speak of the bridge are read, and one more; the model says of them what it always says."""
    every, some = ask(client, TEXTS, top_n=2), ask(skipping, TEXTS)
    assert len(some["results"]) == 10
    some = ask(skipping, TEXTS, top_n=2)
    assert sorted(by_model(some)) == [5, 6]
    assert "skipped" not in every["meta"]
    assert some["meta"]["skipped"] == 7
    assert some["usage"]["total_tokens"] < 0.5 * every["usage"]["total_tokens"]
    assert (some["meta"]["degraded"], some["meta"]["warnings"]) == (False, every["meta"]["warnings"])


@pytest.mark.parametrize("shape", ["tei", "native", "queries"])
def test_every_shape_asks_for_all_by_a_header(skipping: TestClient, shape: str) -> None:
    """text-embeddings-inference has no field for it, and returns every text."""
    body = {
        "tei": {"query": QUERY, "texts": MANY},
        "native": {"query": QUERY, "documents": MANY, "top_n": 2},
        "queries": {"queries": [{"query": QUERY}], "documents": MANY, "top_n": 2},
    }[shape]
    few, every = (skipping.post("/rerank", json=body, headers=headers) for headers in ({}, {"X-Read-All": "true"}))
    assert int(every.headers["x-compute-tokens"]) > 1.5 * int(few.headers["x-compute-tokens"])
    assert "x-skipped-documents" not in every.headers
    assert int(few.headers["x-skipped-documents"]) > 0


def test_documents_that_are_skipped_are_counted(skipping: TestClient) -> None:
    name = "keyblock_skipped_documents_total{"
    counts = []
    for _ in range(2):
        lines = [line for line in skipping.get("/metrics").text.splitlines() if line.startswith(name)]
        counts.append(sum(float(line.rsplit(" ", 1)[1]) for line in lines))
        ask(skipping, TEXTS, top_n=2)
    assert counts[1] - counts[0] == 7


OPTIONS: list[dict[str, Any]] = [
    {},
    {"top_n": 1},
    {"top_n": 2},
    {"top_n": 2, "read_all": True},
    {"top_n": 2, "min_score": 0.5},
    {"top_n": 2, "prune": True},
    {"top_n": 2, "fusion": "mapfuse", "first_stage_scores": list(range(10))},
]


@pytest.mark.parametrize("options", OPTIONS, ids=", ".join)
def test_a_ranker_in_the_process_skips_the_same(skipping: TestClient, skipping_path: Path, options: dict[str, Any]) -> None:
    with Ranker.open(skipping_path, provider="cpu", precision="fp32", threads=1) as ranker:
        ranking = ranker.rank(QUERY, TEXTS, **options)
    answer = ask(skipping, TEXTS, **options)
    assert [(result.index, result.scored_by) for result in ranking] == [
        (result["index"], result.get("scored_by", "model")) for result in answer["results"]
    ]
    assert list(ranking.warnings) == answer["meta"]["warnings"]
    assert ranking.total_tokens == answer["usage"]["total_tokens"]


@pytest.mark.parametrize("learned", [False, True])
def test_in_a_hurry_the_model_reads_first_what_promises_most(
    settings: Settings, bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learned: bool
) -> None:
    """Words of the query: 2 has three, 0 two, 3 one. A learned prior score of the contrary has its turns: 1, then 2, 3."""
    orders = []

    async def score(self: GraphScorer, call: Call, candidates: Sequence[Candidate], priority: Priority) -> Scored:
        orders.append(priority.order)
        return await self.score_documents([one.sequences for one in candidates], priority)

    monkeypatch.setattr(GraphScorer, "score", score)
    prior = Prior(best_block=-1.0) if learned else None
    path = another(bundle_path, tmp_path / "bundle", "hurried", pre_ranking=PreRanking(share=1.0, prior=prior))
    documents = ["An old stone.", "The garden of the city.", "The old stone bridge.", "It was built by monks."]
    with warm(settings.model_copy(update={"bundle": (path,)})) as client:
        for options in ({}, {"deadline_ms": 60_000}):
            assert len(ask(client, documents, **options)["results"]) == 4
    anytime, hurried = orders
    assert anytime is None
    assert hurried == ([1, 2, 3, 0] if learned else [2, 0, 3, 1])


def test_stored_documents_are_skipped_alike(skipping: TestClient) -> None:
    lines = "".join(f'{{"id": "{number}", "text": "{text}"}}\n' for number, text in enumerate(TEXTS))
    assert skipping.put("/documents", content=lines).status_code == 200
    stored = ask(skipping, [{"id": str(number)} for number in range(10)], top_n=2)
    sent = ask(skipping, TEXTS, top_n=2)
    assert [result["id"] for result in stored["results"]] == [str(result["index"]) for result in sent["results"]]
    assert stored["usage"] == sent["usage"]
    assert stored["meta"]["skipped"] == sent["meta"]["skipped"] == 7
