"""Rankers: a run in PyTorch, its bundle in ONNX Runtime and the service over HTTP rank alike; batches score as one by one."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keyblock.bundle import Bundle
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.pre_ranking import PreRanking, Prior
from keyblock.ranker import Ranker
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider
from service.settings import Settings
from tests.service.conftest import warm
from tests.training.conftest import bundle_with
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import Document
from training.evaluate.ranking import (
    HttpRanker,
    bundle_ranker,
    changed,
    run_ranker,
)
from training.evaluate.scoring import TorchModel, length_batches, score
from training.model.checkpoints import latest
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import pad


def test_run_bundle_and_service_rank_alike(toy_run: Path, toy_bundle: Bundle, toy: Collection) -> None:
    trained = run_ranker(toy_run, toy, bf16=False).with_pipeline(fusion=toy_bundle.manifest.pipeline.fusion)
    local = bundle_ranker(toy_bundle, GraphModel.open(toy_bundle, Provider.CPU, 1), toy)
    settings = Settings(bundle=toy_bundle.path, provider=Provider.CPU, precision=Precision.FP32, threads=1)
    with warm(settings) as client:
        for query, candidates in toy.run("dev").items():
            expected = trained.rerank(query, list(candidates))
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


@pytest.fixture(scope="module")
def model(toy_run: Path) -> CrossEncoder:
    """A trained one: a random one hardly tells texts apart."""
    return CrossEncoder.load(latest(toy_run))


@pytest.fixture(scope="module")
def sequences(toy: Collection, toy_pipeline: Pipeline) -> list[Packed]:
    """Twenty pairs of very different lengths."""
    preparation = Preparation(toy, toy_pipeline)
    return [preparation.pack("river?", d, 20 + 5 * (i % 16)) for i, d in enumerate(list(toy.documents)[:20])]


@pytest.mark.parametrize("batch_tokens", [1, 200, 8192])
def test_batches_score_like_one_by_one(model: CrossEncoder, sequences: list[Packed], batch_tokens: int) -> None:
    with torch.inference_mode():
        alone = [model(*pad([packed], 0)).item() for packed in sequences]
    together = score(model, sequences, 0, bf16=False, batch_tokens=batch_tokens)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
    assert np.ptp(together) > 0.1
    assert score(model, [], 0).shape == (0,)


def test_the_mode_is_given_back_and_dropout_never_scores(tiny_backbone: Path, sequences: list[Packed]) -> None:
    model = CrossEncoder.from_backbone(str(tiny_backbone), dropout=0.5).train()
    first = score(model, sequences, 0, bf16=False)
    assert model.training
    np.testing.assert_array_equal(first, score(model.eval(), sequences, 0, bf16=False))
    assert not model.training


@given(st.lists(st.integers(1, 600), max_size=60), st.integers(1, 2000))
def test_every_row_once_under_the_tokens(lengths: list[int], batch_tokens: int) -> None:
    batches = list(length_batches(lengths, batch_tokens))
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= batch_tokens
    flat = [lengths[row] for rows in batches for row in rows]
    assert flat == sorted(lengths, reverse=True)


def test_segment_types_are_the_tokenizers(model: CrossEncoder, sequences: list[Packed]) -> None:
    untyped = score(model, sequences, 0, bf16=False, document_type=0)
    assert not np.allclose(untyped, score(model, sequences, 0, bf16=False))


@pytest.fixture(scope="module")
def passages(tiny_backbone: Path) -> CrossEncoder:
    """A model for `states`, with dropout."""
    torch.manual_seed(0)
    model = CrossEncoder.from_backbone(str(tiny_backbone), dropout=0.5, aggregator={"name": "attention"})
    torch.nn.init.normal_(model.head.weight)
    return model


def test_outputs_and_choices_are_the_models(
    passages: CrossEncoder, model: CrossEncoder, sequences: list[Packed], toy_pipeline: Pipeline
) -> None:
    """Outputs have a column for the logit alone in front of the state; what chooses is that logit, or another model's."""
    scorer = TorchModel(passages.train(), toy_pipeline.tokenizer, bf16=False)
    outputs, choices = scorer.outputs(sequences), scorer.choose(sequences)
    assert passages.training
    assert outputs.shape == (len(sequences), 1 + 32)
    passages.eval()
    with torch.inference_mode():
        alone = np.stack([passages.outputs(*pad([packed], 0))[0].numpy() for packed in sequences])
    np.testing.assert_allclose(outputs, alone, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(choices, alone[:, 0], rtol=1e-4, atol=1e-5)
    chooser = TorchModel(passages, toy_pipeline.tokenizer, False, model)
    np.testing.assert_array_equal(chooser.outputs(sequences), outputs)
    np.testing.assert_array_equal(chooser.choose(sequences), score(model, sequences, 0, bf16=False))


def test_states_are_combined_without_gradients(passages: CrossEncoder, sequences: list[Packed], toy_pipeline: Pipeline) -> None:
    scorer = TorchModel(passages.eval(), toy_pipeline.tokenizer, bf16=False)
    states = scorer.outputs(sequences)[:, 1:].reshape(4, 5, 32)
    mask = np.arange(5) < np.asarray([[5], [1], [3], [2]])
    logits = scorer.combine(states, mask)
    assert (logits.shape, logits.dtype) == ((4,), np.float32)
    for i, count in enumerate([5, 1, 3, 2]):
        alone = scorer.combine(states[i : i + 1, :count], mask[i : i + 1, :count])
        np.testing.assert_allclose(logits[i], alone[0], rtol=1e-4)
