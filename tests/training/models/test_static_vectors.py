"""Static token vectors against their definition."""

import numpy as np
import pytest
import torch

from training.model.static_vectors import Bags, Projection, StaticVectors, quantised, rarity

RNG = np.random.default_rng(3)


def test_a_text_is_the_weighted_sum_of_its_tokens() -> None:
    table, weights = RNG.normal(size=(6, 4)).astype(np.float32), np.asarray([1, 2, 0.5, 1, 3, 1], np.float32)
    texts = [np.asarray(ids, np.int32) for ids in ([1, 4, 4], [], [0], [5, 2])]
    model = StaticVectors(table, weights)
    with torch.inference_mode():
        vectors = model(Bags.of(texts)).numpy()
    for ids, vector in zip(texts, vectors, strict=True):
        total = sum((weights[i] * table[i] for i in ids), start=np.zeros(4))
        np.testing.assert_allclose(vector, total / (np.linalg.norm(total) or 1), atol=1e-5)
    np.testing.assert_allclose(model.folded(), table * weights[:, None], rtol=1e-5)


def test_no_text() -> None:
    assert StaticVectors(np.ones((2, 3), np.float32), np.ones(2, np.float32))(Bags.of([])).shape == (0, 3)


def test_a_projection_keeps_the_directions_that_differ() -> None:
    """Points in a plane of five dimensions keep their distances in two."""
    plane = np.linalg.qr(RNG.normal(size=(5, 2)))[0].T
    points = (RNG.normal(size=(40, 2)) @ plane + 7).astype(np.float32)
    flat = Projection.of(points, 2)(points)
    assert flat.shape == (40, 2)
    distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (points, flat)]
    np.testing.assert_allclose(*distances, atol=1e-4)


def test_too_few_vectors_for_a_projection() -> None:
    with pytest.raises(ValueError, match="3 vectors of 5 dimensions cannot be cut to 4"):
        Projection.of(np.zeros((3, 5), np.float32), 4)


def test_common_tokens_weigh_little() -> None:
    texts = [np.asarray([0] * 900 + [1] * 99, np.int32), np.asarray([2], np.int32)]
    weights = rarity(texts, 4)
    np.testing.assert_allclose(weights, 1e-3 / (1e-3 + np.asarray([0.9, 0.099, 0.001, 0])), rtol=1e-5)


def test_bytes_are_near_the_table() -> None:
    table = RNG.normal(size=(50, 16)).astype(np.float32) * RNG.uniform(0.01, 30, size=(50, 1)).astype(np.float32)
    table[7] = 0
    rounded, scales = quantised(table)
    assert rounded.dtype == np.int8
    assert (np.abs(rounded[np.arange(50) != 7]).max(1) == 127).all()
    assert (np.abs(rounded * scales[:, None] - table) <= scales[:, None] / 2 + 1e-6).all()
    assert not rounded[7].any()
