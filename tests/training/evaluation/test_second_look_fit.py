"""The fit of the second look finds what was planted, and leaves out what says nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keyblock.fusion import Fusion, SecondLook
from training.data.collection import Collection
from training.evaluate.calibration.second_look import LookedScores, fit_second_look, with_look

QUERIES, CANDIDATES = 600, 12
ALL = SecondLook(documents=CANDIDATES, blocks=4, margin=1e9, further=0.0)
FIRST = Fusion(logit=1.0)
"""The first look's fused score is its logit."""


@pytest.fixture
def planted(tmp_path: Path) -> Callable[[float], LookedScores]:
    """Makes dev scores of which one candidate is relevant, drawn in proportion to exp(first + weight * further)."""

    def make(weight: float) -> LookedScores:
        rng = np.random.default_rng(9)
        features, documents, further, lines = {}, {}, {}, []
        for number in range(QUERIES):
            query, names = f"q{number}", [f"d{place}" for place in range(CANDIDATES)]
            logits, after = rng.normal(size=(2, CANDIDATES))
            odds = np.exp(logits + weight * after)
            features[query] = np.column_stack([logits, np.zeros((CANDIDATES, 5))])
            documents[query], further[query] = names, after
            lines.append(f"{query} 0 {names[int(rng.choice(CANDIDATES, p=odds / odds.sum()))]} 1\n")
        (tmp_path / "qrels.tsv").write_text("".join(lines), encoding="utf-8")
        return LookedScores(Collection(tmp_path), features, documents, further, ALL)

    return make


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_the_planted_weight_is_found(planted: Callable[[float], LookedScores], weight: float) -> None:
    scores = planted(weight)
    look = fit_second_look([scores], FIRST)
    assert look.further / look.first == pytest.approx(weight, rel=0.25)
    (after,) = with_look([scores], look)
    assert after.measure(FIRST)["RR@10"] > scores.measure(FIRST)["RR@10"] + 0.02


def test_a_feature_that_says_nothing_gets_no_weight(planted: Callable[[float], LookedScores]) -> None:
    look = fit_second_look([planted(0.0)], FIRST)
    assert abs(look.further) < 0.15 * look.first


def test_a_feature_that_misleads_gets_none_either(planted: Callable[[float], LookedScores]) -> None:
    """A block that the model likes is never a reason against its document."""
    assert fit_second_look([planted(-2.0)], FIRST).further == 0


def test_scores_after_the_look_are_probabilities(planted: Callable[[float], LookedScores]) -> None:
    scores = planted(1.0)
    (after,) = with_look([scores], fit_second_look([scores], FIRST))
    probabilities = np.concatenate([1 / (1 + np.exp(-after.fused(query, FIRST))) for query in after.features])
    assert probabilities.mean() == pytest.approx(1 / CANDIDATES, abs=0.005)
