"""Scores from vectors alone: by hand, beside the vectors themselves, and what has no such score."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keyblock.bundle import FREQUENCIES_FILE, TOKENIZER_FILE, Manifest, write_bundle
from keyblock.description import PipelineConfig
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.prepared import QUANTUM
from keyblock.ranker import Ranker
from keyblock.ranking.order import ScoredBy
from keyblock.runtime.model import open_model
from keyblock.scoring import score_documents
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from keyblock.vector_scores import VectorModel, scored_blocks
from tests.support.vectors import concept_table

PARTS: dict[str, Any] = {
    "segmenter": {"name": "single_sentences", "block_tokens": 30},
    "selector": {"name": "vectors"},
    "encoder": {"name": "static"},
    "aggregator": {"name": "max"},
    "packing": {"title_tokens": 0},
    "cosine_scale": 20,
}
ANSWER = "Sickness: inform the manager. "
TEXTS = ["The bridge is high. The stream is cold. ", f"Nothing failed. {ANSWER}Lunch is at noon. ", "Lunch is at noon. "]


@pytest.fixture(scope="module")
def by_vectors(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    return Pipeline(PipelineConfig.model_validate(PARTS), tokenizer, frequencies, concept_table(tokenizer))


def test_by_hand(by_vectors: Pipeline) -> None:
    """Of the concepts ill, tell and boss the query has the first, so its cosine with a sentence of all three is 1 / sqrt 3."""
    query, document = by_vectors.prepare_query("ill"), by_vectors.prepare_document("You are sick. Sick, report to the boss! Lunch.")
    found = scored_blocks(query, document, np.arange(3), 20)
    assert [one.logit for one in found] == pytest.approx([20, 20 / 3**0.5, 0], abs=20 / QUANTUM)
    assert [(len(one.ids), one.taken.tolist()) for one in found] == [(0, [0]), (0, [1]), (0, [2])]


@pytest.mark.parametrize("aggregator", ["max", "mean", "sum", "term_weighted"])
@pytest.mark.parametrize("selector", ["vectors", "tfidf"])
def test_as_the_vectors_themselves_say(
    aggregator: str, selector: str, tokenizer: Tokenizer, frequencies: DocumentFrequencies
) -> None:
    """The slow way: each chosen block's own vector, as it is kept, times the query's, then the aggregator over a row of them."""
    parts = PARTS | {"selector": {"name": selector}, "aggregator": {"name": aggregator, "passages": 2}}
    pipeline = Pipeline(PipelineConfig.model_validate(parts), tokenizer, frequencies, concept_table(tokenizer))
    query = pipeline.prepare_query("Whom do I tell when I am ill?")
    assert query.vector is not None
    documents = pipeline.prepare_documents(TEXTS)
    logits, selections, marks = score_documents(pipeline, query, documents, VectorModel())
    for document, selection, logit in zip(documents, selections, logits.tolist(), strict=True):
        assert document.vectors is not None
        vectors = document.vectors / QUANTUM
        blocks = [int(one.taken[0]) for one in selection.sequences]
        expected = np.asarray([[20 * float(vectors[block] @ query.vector) for block in blocks]])
        weights = np.asarray([[one.weight for one in selection.sequences]])
        mask = weights if pipeline.aggregator.weighted else weights > 0
        assert logit == pytest.approx(pipeline.aggregator.combine(expected, mask)[0], abs=1e-4)
        assert selection.scores[selection.taken] == pytest.approx(sorted(expected[0], reverse=True), abs=1e-4)
    assert marks is None


def test_what_has_no_score_of_vectors() -> None:
    model = VectorModel()
    with pytest.raises(ValueError, match="needs a cosine_scale"):
        model.outputs([Packed(np.asarray([2, 5, 3], np.int32), 2, np.asarray([0]))])
    with pytest.raises(ValueError, match="needs a bundle with a graph"):
        model.choose([])
    with pytest.raises(ValueError, match="no states"):
        model.combine(np.zeros((1, 1, 2), np.float32), np.ones((1, 1), np.bool_))


def test_a_bundle_without_a_graph_ranks(backbone: Path, by_vectors: Pipeline, tmp_path: Path) -> None:
    """The sentence that answers is the first document's best block; no token is fed to a ranker."""
    by_vectors.frequencies.write(tmp_path / FREQUENCIES_FILE)
    concept_table(by_vectors.tokenizer).write(tmp_path / "token_vectors.npz")
    files = {name: tmp_path / name for name in (FREQUENCIES_FILE, "token_vectors.npz")} | {
        TOKENIZER_FILE: backbone / TOKENIZER_FILE
    }
    bundle = write_bundle(tmp_path / "bundle", Manifest(name="vectors", pipeline=by_vectors.config), files)
    assert isinstance(open_model(bundle), VectorModel)
    with Ranker.open(bundle) as ranker:
        ranking = ranker.rank("Whom do I tell when I am ill?", TEXTS, raw_scores=True)
    assert ranking[0].index == 1
    assert ranking[0].blocks[0].text.strip() == ANSWER.strip()
    assert ranking[0].relevance_score == pytest.approx(20 * (2 / 6**0.5), abs=40 / QUANTUM)
    assert {result.scored_by for result in ranking} == {ScoredBy.MODEL.value}
    assert (ranking.total_tokens, ranking[0].blocks[0].score) == (0, pytest.approx(ranking[0].relevance_score, abs=1e-5))
