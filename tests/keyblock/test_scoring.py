"""Documents scored together, against one at a time through the same real, tiny ranker, step by step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel

from keyblock.aggregation import AGGREGATORS
from keyblock.packing import Packed, pack
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery, term_counts
from keyblock.scoring import score_documents, score_selections, select_documents
from keyblock.selectors import rank_blocks
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.pipelines import make
from training.declarations import STATE_AGGREGATORS
from training.evaluate.scoring import TorchModel
from training.model.aggregators import build_aggregation
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import pad

SENTENCES = ("The river flooded the bridge.", "A quiet city of stone.", "Years went by.", "The old bridge of the city stands.")
TEXTS = [" ".join(SENTENCES[(i * n) % 4] for i in range(n)) for n in (9, 1, 16, 0, 5)]
QUERY = "Which river flooded the city?"
SEGMENTER = {"name": "sentences", "block_tokens": 16}
Rankers = dict[str | None, CrossEncoder]
Made = Callable[..., Pipeline]


def ranker(seed: int, aggregator: str | None = None) -> CrossEncoder:
    """Two layers of random weights, large enough to tell texts apart."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(**sizes, max_position_embeddings=128, initializer_range=0.5)
    description = {"name": aggregator} | ({"heads": 2} if aggregator == "transformer" else {})
    model = CrossEncoder(BertModel(config), build_aggregation(description, 16) if aggregator else None).eval()
    torch.nn.init.normal_(model.head.weight, std=2.0)
    return model


@pytest.fixture(scope="module")
def rankers() -> Rankers:
    return {name: ranker(0, name) for name in (None, *STATE_AGGREGATORS.names())}


@pytest.fixture(scope="module")
def made(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Made:
    """Makes a pipeline of these parts."""
    return partial(make, tokenizer, frequencies, segmenter=SEGMENTER)


def logit(model: CrossEncoder, packed: Packed) -> float:
    with torch.inference_mode():
        return float(model(*pad([packed], 0)).item())


def state(model: CrossEncoder, packed: Packed) -> torch.Tensor:
    with torch.inference_mode():
        return model.states(*pad([packed], 0))[0]


def slow_score(
    pipeline: Pipeline, query: PreparedQuery, document: PreparedDocument, model: CrossEncoder, chooser: CrossEncoder
) -> float:
    """One document, one sequence at a time: shortlist, choose, pack, score, combine."""
    cheap = pipeline.selector.cheap.scores(query, document, pipeline.frequencies)
    order = rank_blocks(cheap).tolist()
    if pipeline.asks_model:
        asked = order[: pipeline.config.selector["keep"] or None]
        logits = {block: logit(chooser, packed_of(pipeline, query, document, [block])) for block in asked}
        order = sorted(asked, key=lambda block: -logits[block]) + order[len(asked) :]
    if pipeline.config.aggregator["name"] == "joint":
        return logit(model, packed_of(pipeline, query, document, order))
    passages = pipeline.config.aggregator["passages"]
    sequences = [packed_of(pipeline, query, document, [block]) for block in sorted(order[: passages or None])]
    if not sequences:
        return -np.inf
    if model.aggregator is not None:
        with torch.inference_mode():
            states = torch.stack([state(model, packed) for packed in sequences]).unsqueeze(0)
            return float(model.aggregator.logits(states, torch.ones(1, len(sequences), dtype=torch.bool), model.scores).item())
    scores = [logit(model, packed) for packed in sequences]
    counts = term_counts(query, document).sum(axis=0)[sorted(order[: passages or None])]
    weighed = float(np.average(scores, weights=counts if counts.any() else None))
    ways = {"max": max(scores), "mean": float(np.mean(scores)), "sum": sum(scores), "term_weighted": weighed}
    return ways[pipeline.config.aggregator["name"]]


def packed_of(pipeline: Pipeline, query: PreparedQuery, document: PreparedDocument, order: list[int]) -> Packed:
    return pack(query, document, np.asarray(order, dtype=np.intp), pipeline.tokenizer.template, 128)


KINDS = [*sorted({*AGGREGATORS.names()} - {"states"}), *(f"states {name}" for name in STATE_AGGREGATORS.names())]


@pytest.mark.parametrize("selector", [{"name": "bm25"}, {"name": "learned", "keep": 4}], ids=["bm25", "cascade"])
@pytest.mark.parametrize("aggregator", KINDS)
def test_documents_together_score_as_one_at_a_time(
    made: Made, tokenizer: Tokenizer, rankers: Rankers, selector: dict[str, Any], aggregator: str
) -> None:
    name, _, module = aggregator.partition(" ")
    passages = {} if name == "joint" else {"passages": 3}
    pipeline = made(selector=selector, aggregator={"name": name} | passages)
    model = rankers[module or None]
    query, documents = pipeline.prepare_query(QUERY), pipeline.prepare_documents(TEXTS)
    scored = score_documents(pipeline, query, documents, TorchModel(model, tokenizer, bf16=False))
    slow = [slow_score(pipeline, query, document, model, model) for document in documents]
    assert scored.logits.dtype == np.float32
    np.testing.assert_allclose(scored.logits, slow, rtol=1e-3, atol=1e-4)
    assert np.ptp(scored.logits[scored.logits > -np.inf]) > 0.1
    assert np.isneginf(scored.logits).tolist() == [name != "joint" and not text for text in TEXTS]
    assert [len(selection.scores) for selection in scored.selections] == [document.n_blocks for document in documents]


def test_another_model_may_choose(made: Made, tokenizer: Tokenizer, rankers: Rankers) -> None:
    """BinB2: the blocks are the chooser's, the score is the model's."""
    pipeline = made(selector={"name": "learned"}, aggregator={"name": "max", "passages": 1})
    model, chooser = rankers[None], ranker(1)
    query, documents = pipeline.prepare_query(QUERY), pipeline.prepare_documents(TEXTS)
    two = score_documents(pipeline, query, documents, TorchModel(model, tokenizer, False, chooser))
    one = score_documents(pipeline, query, documents, TorchModel(model, tokenizer, False))
    np.testing.assert_allclose(
        two.logits, [slow_score(pipeline, query, d, model, chooser) for d in documents], rtol=1e-3, atol=1e-4
    )
    assert any(a.taken.tolist() != b.taken.tolist() for a, b in zip(one.selections, two.selections, strict=True))
    assert (one.logits >= two.logits - 1e-4).all(), "of single blocks its own choice has its best score"


class Counting(TorchModel):
    """A model that keeps how often it is asked, and for what."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.asked: list[tuple[str, int]] = []

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        self.asked.append(("outputs", len(sequences)))
        return super().outputs(sequences)

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        self.asked.append(("choose", len(sequences)))
        return super().choose(sequences)


def test_two_rounds_for_all_documents_and_none_for_nothing(made: Made, tokenizer: Tokenizer, rankers: Rankers) -> None:
    pipeline = made(selector={"name": "learned", "keep": 2}, aggregator={"name": "max", "passages": 1})
    model = Counting(rankers[None], tokenizer, False)
    query, documents = pipeline.prepare_query(QUERY), pipeline.prepare_documents(TEXTS)
    score_documents(pipeline, query, documents, model)
    shortlisted = sum(min(2, document.n_blocks) for document in documents)
    assert model.asked == [("choose", shortlisted), ("outputs", sum(document.n_blocks > 0 for document in documents))]
    model.asked.clear()
    empty = pipeline.prepare_documents(["", " "])
    assert score_documents(pipeline, query, empty, model).logits.tolist() == [-np.inf, -np.inf]
    nothing = score_documents(pipeline, query, [], model)
    assert (nothing.logits.shape, nothing.selections) == ((0,), [])
    assert select_documents(pipeline, query, [], model.choose) == []
    assert score_selections(pipeline, [], model).logits.shape == (0,)
    assert model.asked == []


def test_a_budget_reaches_both_rounds(made: Made, tokenizer: Tokenizer, rankers: Rankers) -> None:
    pipeline = made(selector={"name": "learned"})
    query, documents = pipeline.prepare_query(QUERY), pipeline.prepare_documents(TEXTS)
    lengths: list[int] = []

    def choose(sequences: Sequence[Packed]) -> NDArray[np.float32]:
        lengths.extend(len(packed.ids) for packed in sequences)
        return np.zeros(len(sequences), dtype=np.float32)

    selections = select_documents(pipeline, query, documents, choose, budget=16)
    assert max(lengths) == 16
    assert max(len(selection.packed.ids) for selection in selections) == 16
    with pytest.raises(ValueError, match="a budget of 4 tokens has no room"):
        score_documents(pipeline, query, documents, TorchModel(rankers[None], tokenizer), budget=4)
