"""Rankers: a run in PyTorch, its bundle in ONNX Runtime and the service over HTTP put the same documents in the same order."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.bundle import Bundle
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.pre_ranking import PreRanking, Prior
from keyblock.ranker import Ranker
from keyblock.ranking.order import LOWEST
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider
from keyblock.scoring import Model
from service.settings import Settings
from tests.service.conftest import warm
from tests.training.conftest import bundle_with
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import Document
from training.evaluate.ranking import (
    HttpRanker,
    LocalRanker,
    bundle_ranker,
    changed,
    run_ranker,
)
from training.evaluate.scoring import TorchModel


@pytest.fixture(scope="module")
def fused_run(toy_run: Path, toy_bundle: Bundle, toy: Collection) -> LocalRanker:
    """The run with the bundle's fusion, in fp32."""
    ranker = run_ranker(toy_run, toy, bf16=False)
    pipeline = ranker.preparation.pipeline
    config = pipeline.config.model_copy(update={"fusion": toy_bundle.manifest.pipeline.fusion})
    ranker.preparation = Preparation(toy, Pipeline(config, pipeline.tokenizer, pipeline.frequencies))
    return ranker


def test_run_bundle_and_service_rank_alike(fused_run: LocalRanker, toy_bundle: Bundle, toy: Collection) -> None:
    local = bundle_ranker(toy_bundle, GraphModel.open(toy_bundle, Provider.CPU, 1), toy)
    settings = Settings(bundle=toy_bundle.path, provider=Provider.CPU, precision=Precision.FP32, threads=1)
    with warm(settings) as client:
        for query, candidates in toy.run("dev").items():
            expected = fused_run.rerank(query, list(candidates))
            for other in (local, HttpRanker("served", toy, client)):
                found = other.rerank(query, list(candidates))
                assert list(found.scores) == list(expected.scores)
                assert found.scores == pytest.approx(expected.scores, abs=1e-4)
                assert found.blocks == expected.blocks


def test_documents_that_are_skipped_rank_as_they_are_served(toy_bundle: Bundle, toy_copy: Path, tmp_path: Path) -> None:
    """Of fifteen that begin as the one on the river, ten are read; the others, and all on other things, follow by their blocks."""
    toy = Collection(toy_copy)
    text = toy.documents["river-3"].text
    toy.documents.update({f"{n}": Document(f"{n}", "", text + " The river." * n) for n in range(15)})
    bundle = bundle_with(toy_bundle, tmp_path / "bundle", {"pre_ranking": PreRanking(share=0.01, per_result=1.0, least=1)})
    model, candidates = GraphModel.open(bundle, Provider.CPU, 1), list(toy.documents)
    local, served = bundle_ranker(bundle, model, toy), Ranker(bundle, model)
    found = local.rerank("river?", candidates)
    ranking = served.rank(toy.query("river?"), [{"id": d.doc_id, "title": d.title, "text": d.text} for d in toy.documents.values()])
    assert list(found.scores) == [result.id for result in ranking]
    assert [result.scored_by for result in ranking].count("model") == 10 < len(candidates)
    every = local.score("river?", candidates).logits
    assert (every > -np.inf).all(), "who asks for logits gets them all"


class Rounded:
    """A model without its last digits, which on some CPUs depend on a sequence's row in the batch."""

    def __init__(self, model: Model) -> None:
        self._model, self.combine = model, model.combine

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        return np.round(self._model.outputs(sequences), 3)

    choose = outputs


def test_ties_keep_the_order_given_and_empty_documents_come_last(fused_run: LocalRanker, toy_copy: Path) -> None:
    collection = Collection(toy_copy)
    text = collection.documents["river-0"].text
    collection.documents.update({name: Document(name, "River", text) for name in ("z", "a")})
    collection.documents["void"] = Document("void", "River", "")
    ranker = LocalRanker("x", Preparation(collection, fused_run.preparation.pipeline), Rounded(fused_run.model))
    reranked = ranker.rerank("river?", ["void", "z", "river-0", "a"])
    assert list(reranked.scores) == ["z", "river-0", "a", "void"]
    assert reranked.scores["void"] == LOWEST
    assert reranked.blocks["void"] == []


@pytest.mark.parametrize(
    ("victim", "content", "said"),
    [
        ("pipeline.json", None, "pipeline.json"),
        ("pipeline.json", '{"analyzer"', "pipeline.json: .*Invalid JSON"),
        ("pipeline.json", "[1]", "pipeline.json: "),
        ("pipeline.json", '{"selector": {"name": "bm52"}}', "pipeline.json: selector: .*unknown selector 'bm52'"),
        ("tokenizer.json", "{}", "not a tokenizer file"),
        ("frequencies.tsv", "x\n", "line 1 must be 'documents<TAB>N'"),
        ("checkpoint/head.safetensors", "", "cannot be read as an encoder"),
    ],
)
def test_a_damaged_run_is_one_clear_error(run_copy: Path, toy: Collection, victim: str, content: str | None, said: str) -> None:
    (run_copy / victim).unlink()
    if content is not None:
        (run_copy / victim).write_text(content, encoding="utf-8")
    with pytest.raises((ValueError, OSError), match=said):
        run_ranker(run_copy, toy)


def answering(status: int, body: str) -> httpx.Client:
    """A client of a service that gives one answer to every request."""
    return httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status, text=body)), base_url="http://service")


@pytest.mark.parametrize("body", ["<html>", "[]", "{}", json.dumps({"results": [{"id": "river-0", "relevance_score": None}]})])
def test_something_else_than_a_reranker_answers(toy: Collection, body: str) -> None:
    with answering(200, body) as client, pytest.raises(ValueError, match="/rerank does not answer as POST /rerank does"):
        HttpRanker("x", toy, client).rerank("river?", ["river-0"])


def test_a_service_that_fails(toy: Collection) -> None:
    with answering(503, "busy") as client, pytest.raises(ValueError, match="/rerank: answers 503 busy"):
        HttpRanker("x", toy, client).rerank("river?", ["river-0"])


def test_a_service_gets_further_options(toy: Collection) -> None:
    asked: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, json={"results": [{"id": "river-0", "relevance_score": 1, "blocks": []}]})

    with httpx.Client(base_url="http://x", transport=httpx.MockTransport(handle)) as client:
        HttpRanker("x", toy, client, {"deadline_ms": 50}).rerank(next(iter(toy.queries)), ["river-0"])
        HttpRanker("x", toy, client).rerank(next(iter(toy.queries)), ["river-0"])
    assert [body.get("deadline_ms") for body in asked] == [50, None]


@pytest.mark.parametrize(("precision", "bf16"), [("fp32", False), ("bf16", True)])
def test_a_run_computes_as_its_recipe_says(
    run_copy: Path, toy: Collection, capsys: pytest.CaptureFixture[str], precision: str, bf16: bool
) -> None:
    path = run_copy / "recipe.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("precision: fp32", f"precision: {precision}"), encoding="utf-8")
    ranker = run_ranker(run_copy, toy)
    assert isinstance(ranker.model, TorchModel)
    assert ranker.model.bf16 is bf16
    *_, last = capsys.readouterr().err.splitlines()  # transformers may show a progress bar before, as earlier tests have left it
    assert last.startswith(f"toy-run: computes in {precision} on ")
    assert last.endswith("; PyTorch takes several times as long as the bundle that keyblock-export makes of it")


def test_a_change_of_a_pre_ranking_may_name_a_single_key(toy_bundle: Bundle) -> None:
    """What it does not name stays, as for the fusion: the share of `--pipeline` is measured with the learned prior score."""
    with_one = toy_bundle.pipeline.config.model_copy(update={"pre_ranking": PreRanking(margin=0.2, prior=Prior(coverage=2.0))})
    pipeline = Pipeline(with_one, toy_bundle.pipeline.tokenizer, toy_bundle.pipeline.frequencies)
    found = changed(pipeline, {"pre_ranking": {"share": 0.5}}, toy_bundle.path).config.pre_ranking
    assert found == PreRanking(share=0.5, margin=0.2, prior=Prior(coverage=2.0))
    assert changed(pipeline, {"pre_ranking": None}, toy_bundle.path).config.pre_ranking is None
    none = changed(toy_bundle.pipeline, {"pre_ranking": {"share": 0.5}}, toy_bundle.path).config.pre_ranking
    assert none == PreRanking(share=0.5)
