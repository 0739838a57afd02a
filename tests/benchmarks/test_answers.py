"""What answers are worth: points of a reliability diagram, and gold passages that spans and shares of the tokens meet."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.answers import LEAST, SplitScores, _digest, coverage_row, reliability_points
from keyblock.bundle import load_bundle
from keyblock.evidence import FEATURES, Fusion
from keyblock.span_scores import SpanScores
from keyblock.spans import Sentence
from training.collections.collection import Collection, Span
from training.evaluation.calibration import DevScores
from training.evaluation.span_fit import ReadDocument

FUSION, HOW = Fusion(bias=0, logit=1), SpanScores(bias=0, mark=1, document=0)


def test_points_are_means_of_tenths_that_hold_enough() -> None:
    scores = np.asarray([0.62] * LEAST + [0.68] * LEAST + [0.05] * (LEAST - 1) + [1.0] * LEAST)
    labels = np.asarray([1.0] * LEAST + [0.0] * LEAST + [1.0] * (LEAST - 1) + [1.0] * LEAST)
    assert np.allclose(reliability_points(scores, labels), [(0.65, 0.5), (1, 1)])


def document(marks: list[float], gold: tuple[int, int]) -> ReadDocument:
    """Sentences of ten characters and five tokens each, every other one read."""
    sentences = [Sentence(20 * n, 20 * n + 10, mark, 5) for n, mark in enumerate(marks)]
    return ReadDocument("river?", "river-3", np.zeros(len(FEATURES)), sentences, [Span("river-3", *gold)], 100)


def test_gold_is_met_by_the_best_sentences_and_within_shares_of_the_tokens(tmp_path: Path) -> None:
    """The gold passage is the second sentence in the first document, the worst of five in the second, unread in the third."""
    text = json.dumps({"_id": "river-3", "title": "", "text": "x" * 100})
    (tmp_path / "corpus.jsonl").write_text(text + "\n", encoding="utf-8")
    documents = [
        document([3, 2, -9, -9, -9], (20, 30)),
        document([5, 4, 3, 2, 1], (85, 95)),
        document([1, 1, 1, 1, 1], (12, 18)),
    ]
    row = coverage_row(SplitScores(DevScores(Collection(tmp_path), {}, {}), documents), FUSION, HOW)
    met, sure, blocks, tokens, *shares = map(float, row)
    assert (met, sure, blocks) == (0.333, 0.333, 0.667)
    assert tokens == round(3 * 3 * 5 / 300, 3)
    assert shares == [0, 0.333, 0.333, 0.667], "5, 10, 20 and 40 of 100 tokens: one, two, four and eight sentences"


def test_what_is_kept_depends_on_what_is_read_and_not_on_what_is_fitted(bundle_path: Path) -> None:
    bundle = load_bundle(bundle_path)

    def with_pipeline(**changes: object) -> str:
        manifest = bundle.manifest
        pipeline = manifest.pipeline.model_copy(update=changes)
        return _digest(replace(bundle, manifest=manifest.model_copy(update={"pipeline": pipeline})))

    assert with_pipeline(fusion=FUSION, min_score=0.5, spans=HOW) == _digest(bundle)
    packing = bundle.manifest.pipeline.packing
    assert with_pipeline(packing=packing.model_copy(update={"budget": packing.budget - 1})) != _digest(bundle)
