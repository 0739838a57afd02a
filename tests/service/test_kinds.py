"""Every kind of bundle, over HTTP: the answer is that of the ranker in the process, whatever is stored, cached or asked at once."""

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from keyblock import Ranker as InProcess
from keyblock.bundle import Bundle, load_bundle
from keyblock.client.results import read_ranking
from keyblock.pipeline import Pipeline, Selection
from keyblock.prepared import PreparedDocument
from keyblock.results import Result
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from service.app import create_app
from service.queue.graphs import Graphs
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, Connection, Faulty, came, wait_for
from tests.service.kinds import CHOOSERS, KINDS
from tests.service.rankers import sample, started

QUERY = "which river flooded the old stone bridge"
WORDS = "river bridge stone city flood year winter garden teacher letter forest window market engine island harbour".split()
CLOSE = 1e-4  # of a logit, whatever batch it was in


def document(seed: int) -> dict[str, str]:
    """Up to a dozen blocks, no two alike; every fourth has nothing to score, every third has a title."""
    rng = np.random.default_rng(seed)
    sentences = [
        " ".join(rng.choice(WORDS, 12)).capitalize() + "." for _ in range(0 if seed % 4 == 3 else int(rng.integers(1, 40)))
    ]
    return {"text": " ".join(sentences), "title": f"Number {seed}" if seed % 3 == 0 else ""}


DOCUMENTS = [document(seed) for seed in range(12)]


@pytest.fixture(scope="module", params=KINDS)
def served(
    request: pytest.FixtureRequest, settings: Settings, bundle_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TestClient, Ranker]]:
    """A service of the kind, with the caches, as it is started, and a store."""
    changes = {"bundle": (bundle_of(request.param),), "score_cache_bytes": 1 << 22, "store": str(tmp_path_factory.mktemp("store"))}
    changed = settings.model_copy(update=changes)
    ranker = Ranker.load(changed)
    with TestClient(create_app(changed, ranker)) as client:
        wait_for(lambda: ranker.worker.ready)
        yield client, ranker


@functools.cache
def opened(path: Path) -> tuple[Bundle, GraphModel]:
    """Each bundle once."""
    bundle = load_bundle(path)
    return bundle, GraphModel.open(bundle, Provider.CPU, 1)


def test_the_same_again_is_answered_without_the_model(served: tuple[TestClient, Ranker]) -> None:
    """To the bit, tokens told included, whatever is asked of the model and made of what it says."""
    client, ranker = served

    def said() -> tuple[Any, Any, float]:
        request = {"query": QUERY, "documents": DOCUMENTS, "return_blocks": True, "raw_scores": True, "max_tokens_per_doc": 72}
        answer = client.post("/rerank", json=request).json()
        return answer["results"], answer["usage"], sample(ranker, "tokens", model=ranker.models.default.name)

    first = said()
    assert first[1]["total_tokens"] > 0
    assert said() == first


def test_documents_by_id_are_ranked_as_their_texts(served: tuple[TestClient, Ranker]) -> None:
    client, ranker = served
    documents = [{"id": f"d{seed}", **document(seed)} for seed in range(100, 112)]
    assert client.put("/documents", content="\n".join(map(json.dumps, documents))).json()["stored"] == 12

    def ranked(documents: list[dict[str, str]]) -> list[dict[str, Any]]:
        request = {"query": QUERY, "documents": documents, "return_blocks": True}
        return list(client.post("/rerank", json=request).json()["results"])

    by_id = ranked([{"id": one["id"]} for one in documents])
    assert sample(ranker, "store_lookups", outcome="hit") == 12
    by_text = ranked(documents)
    assert [one | {"relevance_score": None} for one in by_id] == [one | {"relevance_score": None} for one in by_text]
    scores = [one["relevance_score"] for one in by_text]  # batches of other shapes round otherwise
    assert [one["relevance_score"] for one in by_id] == pytest.approx(scores, rel=1e-5)
    assert ranked([{"id": "nobody"}, {"id": "d101"}])[1]["scored_by"] == "order"


def test_concurrent_requests_of_all_sizes_get_what_each_would_get_alone(served: tuple[TestClient, Ranker]) -> None:
    client, _ = served
    requests: list[dict[str, Any]] = [
        {
            "query": f"{QUERY} {WORDS[n]}",
            "documents": [document(100 * n + m) for m in range(1 + (5 * n) % 12)],
            "max_tokens_per_doc": (64, 128, 256)[n % 3],
            "raw_scores": True,
            "return_blocks": n % 2 == 0,
        }
        for n in range(6)
    ]

    def scores(request: dict[str, Any]) -> dict[int, float]:
        return {r["index"]: r["relevance_score"] for r in client.post("/rerank", json=request).json()["results"]}

    alone = [scores(request) for request in requests]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(scores, requests))
    for one, other in zip(alone, together, strict=True):
        assert one == pytest.approx(other, abs=CLOSE)


def test_info_tells_selector_aggregator_and_graphs(served: tuple[TestClient, Ranker]) -> None:
    client, ranker = served
    about, kind = client.get("/info").json(), ranker.models.default.bundle.manifest.name
    assert about["selector"]["name"] == KINDS[kind].get("selector", {"name": "bm25"})["name"]
    assert about["aggregator"]["name"] == KINDS[kind].get("aggregator", {"name": "joint"})["name"]
    graphs = {"ranker"} | ({"aggregator"} if about["aggregator"]["name"] == "states" else set())
    assert set(about["graphs"]) == graphs | ({"selector"} if kind in CHOOSERS else set())
    assert str(ranker.models.default.bundle.path) not in str(about)


class Parts:
    """Graphs that can be stopped and broken, each for itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        model = opened(path)[1]
        self.ranker_graph = Faulty(model.session)
        self.selector_graph = Faulty(model.selector or model.session)
        self.combine_fault: Exception | None = None

        def combine(states: Any, mask: Any) -> Any:
            if self.combine_fault is not None:
                raise self.combine_fault
            return model.combine(states, mask)

        self.graphs = Graphs(self.ranker_graph, self.selector_graph, combine)


@pytest.fixture
def parts(bundle_of: Callable[[str], Path]) -> Parts:
    return Parts(bundle_of("parade by binb2"))


@pytest.fixture
def of_parts(settings: Settings, parts: Parts) -> Iterator[tuple[TestClient, Ranker]]:
    with started(settings, parts.graphs, bundle=(parts.path,)) as served:
        yield served


def test_a_failure_in_any_round_fails_that_request_and_no_other(of_parts: tuple[TestClient, Ranker], parts: Parts) -> None:
    client, _ = of_parts

    def ask() -> tuple[int, str]:
        response = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS})
        return response.status_code, response.json().get("message", "")

    parts.ranker_graph.shapes.clear()
    parts.selector_graph.fault = RuntimeError("the selector caught fire")
    assert ask()[0] == 500
    assert not parts.ranker_graph.shapes  # there was no second round
    parts.selector_graph.fault = None
    parts.ranker_graph.fault = RuntimeError("the ranker caught fire")
    assert ask()[0] == 500
    parts.ranker_graph.fault = None
    parts.combine_fault = RuntimeError("the aggregator caught fire")
    status, message = ask()
    assert (status, "the aggregator caught fire" in message) == (500, True)
    parts.combine_fault = None
    assert ask()[0] == 200
    assert client.get("/health/ready").status_code == 200


def test_blocks_that_a_deadline_left_unscored_are_reported(
    of_parts: tuple[TestClient, Ranker], parts: Parts, clock: Leaping
) -> None:
    """The selector hangs: the cheap one's order is all there is."""
    client, ranker = of_parts
    parts.selector_graph.stopped = clock.leap
    parts.selector_graph.open.clear()
    meta = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, "deadline_ms": 1000 * FAR}).json()["meta"]
    parts.selector_graph.open.set()
    assert meta["degraded"] is True
    assert any("blocks were not scored in time" in warning for warning in meta["warnings"])
    assert sample(ranker, "degraded", how="blocks", model=ranker.models.default.name) == 1


def test_passages_that_a_deadline_left_unscored_keep_the_selectors_order(
    settings: Settings, bundle_of: Callable[[str], Path], clock: Leaping
) -> None:
    """The ranker hangs: what the answer names is BM25's choice, with BM25's scores."""
    bundle, model = opened(bundle_of("maxp"))
    pipeline, graph = bundle.pipeline, Faulty(model.session)
    with started(settings, Graphs(graph), bundle=(bundle.path,)) as (client, _):
        graph.stopped = clock.leap
        graph.open.clear()
        request = {"query": QUERY, "documents": DOCUMENTS[:6], "deadline_ms": 1000 * FAR, "return_blocks": True}
        results = client.post("/rerank", json=request).json()["results"]
        graph.open.set()
    by_selector = [result for result in results if result.get("scored_by") == "selector"]
    assert by_selector
    for result in by_selector:
        document = pipeline.prepare_document(**DOCUMENTS[result["index"]])
        selection = pipeline.select(pipeline.prepare_query(QUERY), document)
        assert [block["start"] for block in result["blocks"]] == document.starts[selection.taken].tolist()
        assert [block["score"] for block in result["blocks"]] == pytest.approx(selection.scores[selection.taken].tolist())


def test_a_client_that_goes_between_the_rounds_costs_no_more(
    of_parts: tuple[TestClient, Ranker], parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves while blocks are selected: the slices in hand are finished, and nothing is scored."""
    client, ranker = of_parts
    text = " ".join(document(4 * n)["text"] for n in range(40))  # about a dozen make a slice
    connection = Connection({"query": QUERY, "documents": [text] * 64})
    begun, go_on = threading.Event(), threading.Event()
    selected: list[PreparedDocument] = []
    select = Pipeline.select

    def slowly(self: Pipeline, query: Any, prepared: PreparedDocument, *rest: Any) -> Selection:
        selected.append(prepared)
        begun.set()
        assert go_on.wait(PATIENCE)
        return select(self, query, prepared, *rest)

    async def work() -> None:
        task = asyncio.create_task(connection.ask(client.app))
        await came(begun.is_set)
        connection.go()
        await task
        go_on.set()

    parts.ranker_graph.shapes.clear()
    monkeypatch.setattr(Pipeline, "select", slowly)
    assert client.portal is not None
    client.portal.call(work)
    assert not parts.ranker_graph.shapes
    assert len(selected) < 40  # of 64: the slices that were in hand
    assert sample(ranker, "requests", dialect="native", outcome="cancelled") == 1


@pytest.mark.parametrize(
    "options", [{}, {"top_n": 3, "raw_scores": True, "max_tokens_per_doc": 64, "instruction": "Find a bridge."}]
)
def test_a_ranker_in_the_process_ranks_as_the_service(served: tuple[TestClient, Ranker], options: dict[str, Any]) -> None:
    client, ranker = served
    response = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, "return_blocks": True, **options})
    expected = read_ranking(response.json(), DOCUMENTS, "")
    with InProcess.open(ranker.models.default.bundle.path, provider="cpu", precision="fp32", threads=1) as in_process:
        ranking = in_process.rank(QUERY, DOCUMENTS, **options)
    assert list(map(unscored, ranking)) == list(map(unscored, expected))
    for result, other in zip(ranking, expected, strict=True):
        assert result.relevance_score == pytest.approx(other.relevance_score, abs=CLOSE)
        assert [block.score for block in result.blocks] == pytest.approx([block.score for block in other.blocks], abs=CLOSE)
    assert (ranking.model, ranking.warnings, ranking.degraded) == (expected.model, expected.warnings, expected.degraded)
    assert ranking.total_tokens == expected.total_tokens


def unscored(result: Result) -> Result:
    """All but the scores, which depend on the batch in their last digits."""
    return replace(result, relevance_score=0.0, blocks=tuple(replace(block, score=0.0) for block in result.blocks))
