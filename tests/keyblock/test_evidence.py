"""Fusion of the logit with lexical evidence: numbers by hand, and independence of the other candidates."""

import math

import numpy as np
import pytest

from keyblock.fusion import FEATURES, Activation, Fusion, evidence_of, has_evidence, sigmoid

ALL_FOUND, NO_IDF = np.ones(2, dtype=np.bool_), np.zeros(0)


def test_by_hand() -> None:
    fusion = Fusion(bias=-1.0, logit=0.5, best_block=0.2, top_blocks=0.1, coverage=2.0, similarity=10, mass=-0.5)
    evidence = np.asarray([[5.0, 3.0, 0.5, 0.25, 6.0], [0.0, 0.0, 0.0, 0.0, 6.0]])
    fused = fusion.fuse(np.asarray([4.0, -4.0], dtype=np.float32), evidence)
    np.testing.assert_allclose(fused, [-1 + 2 + 1 + 0.3 + 1 + 2.5 - 3, -1 - 2 - 3])
    assert fused.dtype == np.float64


def test_the_default_is_the_model_alone() -> None:
    logits = np.asarray([2.5, -3.0], dtype=np.float32)
    np.testing.assert_array_equal(Fusion().fuse(logits, np.ones((2, 5))), logits)


def test_weights_go_in_and_out_in_the_order_of_the_features() -> None:
    weights = np.asarray([1.5, 0.25, -0.5, 3.0, 8.0, -2.0])
    fusion = Fusion.from_weights(0.75, weights)
    np.testing.assert_array_equal(fusion.weights, weights)
    assert fusion.model_dump() == {"bias": 0.75, **dict(zip(FEATURES, weights.tolist(), strict=True))}
    assert Fusion.model_validate_json(fusion.model_dump_json()) == fusion
    assert set(FEATURES) | {"bias"} == set(Fusion.model_fields)


@pytest.mark.parametrize("wrong", [{"first_stage": 1.0}, {"similarity": math.nan}, {"similarity": math.inf}])
def test_unknown_weights_and_those_that_order_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Fusion.model_validate(wrong)


def test_evidence_by_hand() -> None:
    """Best 5, mean of the three best (5 + 4 + 3) / 3, and terms of idf 1 and 3 of which the second occurs: 3/4."""
    scores = np.asarray([3.0, 0.0, 5.0, 4.0, 1.0])
    evidence = evidence_of(scores, np.asarray([False, True]), np.asarray([1.0, 3.0]))
    np.testing.assert_allclose(evidence, [5.0, 4.0, 0.75, 0.0, 4.0])
    near = np.asarray([0.1, 0.4, 0.2, 0.0, 0.3])
    np.testing.assert_allclose(evidence_of(scores, np.asarray([False, True]), np.asarray([1.0, 3.0]), near), [5, 4, 0.75, 0.4, 4])


def test_blocks_speak_by_a_shared_term_or_by_tokens_that_are_near() -> None:
    rows = np.asarray([[0.5, 0.2, 0.1, 0.0, 9], [0.0, 0.0, 0.0, 0.4, 9], [0.0, 0.0, 0.0, 0.39, 9], [0.0] * 5])
    assert has_evidence(rows, 0.4).tolist() == [True, True, False, False]


def test_evidence_of_few_blocks_none_and_no_terms() -> None:
    np.testing.assert_allclose(evidence_of(np.asarray([6.0]), ALL_FOUND, np.ones(2)), [6.0, 2.0, 1.0, 0.0, 2.0])
    assert evidence_of(np.zeros(0), ~ALL_FOUND, np.ones(2)).tolist() == [0.0] * 5
    assert evidence_of(np.zeros(4), np.zeros(0, dtype=np.bool_), NO_IDF).tolist() == [0.0] * 5
    assert evidence_of(np.zeros(4), ALL_FOUND, np.zeros(2)).tolist() == [0.0] * 5


def test_the_sigmoid_tells_small_probabilities_apart() -> None:
    """A query of a thousand words has fused logits of -100 and below: scores stay in the logits' order, and above 0."""
    values = np.linspace(-500, -30, 200)
    np.testing.assert_allclose(sigmoid(values), np.exp(values), rtol=1e-12)
    assert (np.diff(sigmoid(values)) > 0).all()
    np.testing.assert_allclose(sigmoid(np.asarray([-1e6, 0.0, 2.0, 1e6])), [0, 0.5, 1 / (1 + math.exp(-2)), 1], atol=1e-15)


def test_activations_by_hand() -> None:
    logits = np.asarray([0.0, 2.0, -2.0])
    np.testing.assert_allclose(Activation().scores(logits), [0.5, 0.880797, 0.119203], rtol=1e-5)
    np.testing.assert_allclose(Activation(name="identity").scores(logits), logits)
    np.testing.assert_allclose(Activation(scale=0.5).scores(logits), [0.5, 0.731059, 0.268941], rtol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"name": "softmax"}, {"bias": 1}, *({"scale": bad} for bad in (0.0, -1.0, 1e7, math.inf, math.nan))]
)
def test_an_invalid_activation_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Activation.model_validate(wrong)
