"""The teacher against a text at a time, and static token vectors against their definition."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from training.model.sentence_encoder import SentenceEncoder
from training.model.static_vectors import Bags, Projection, StaticVectors, quantised, rarity

TEXTS = ["a river", "", "the old stone bridge over the river stands here", "winter", "a river"]


@pytest.fixture(scope="module")
def encoder(tiny_backbone: Path) -> SentenceEncoder:
    return SentenceEncoder(str(tiny_backbone))


def test_vectors_are_means_of_token_states(encoder: SentenceEncoder) -> None:
    """One text at a time, without padding, gives the same."""
    vectors = encoder.encode(encoder.rows(TEXTS))
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = torch.tensor([encoder.tokenizer.encode(text).ids])
        with torch.inference_mode():
            mean = encoder.model(input_ids=ids).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[4])


def test_what_was_encoded_is_found_again(encoder: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text once, also after an interruption, and not by another model."""
    monkeypatch.setattr("training.model.sentence_encoder.SAVED_EVERY", 2)
    rows, encoded, plain = encoder.rows(TEXTS), list[int](), encoder.encode

    def counted(some: list[list[int]]) -> np.ndarray:
        if len(encoded) == 1:
            encoded.append(0)
            raise KeyboardInterrupt
        encoded.append(len(some))
        return plain(some)

    monkeypatch.setattr(encoder, "encode", counted)
    with pytest.raises(KeyboardInterrupt):
        encoder.encode_kept(rows, tmp_path)
    for _ in range(2):
        np.testing.assert_allclose(encoder.encode_kept(rows, tmp_path), plain(rows), atol=1e-3)
    assert encoded == [2, 0, 2], "of four different texts two were kept"
    (file, _) = sorted(tmp_path.glob("*/*.npz"))
    file.write_bytes(file.read_bytes()[:100])
    np.testing.assert_allclose(encoder.encode_kept(rows[::-1], tmp_path), plain(rows[::-1]), atol=1e-3)
    assert encoded == [2, 0, 2, 2], "what a damaged file held is encoded again"
    monkeypatch.setattr(encoder, "encode", plain)
    weight = next(encoder.model.parameters())
    before = weight.detach().clone()
    try:
        weight.data += torch.randn_like(weight)
        np.testing.assert_allclose(encoder.encode_kept(rows, tmp_path), plain(rows), atol=1e-3)
    finally:
        weight.data = before


def test_no_text(encoder: SentenceEncoder, tmp_path: Path) -> None:
    assert encoder.encode_kept([], tmp_path).shape == (0, 32)


def test_tokens_of_the_same_and_of_another_vocabulary(encoder: SentenceEncoder) -> None:
    own = encoder.token_rows(encoder.tokenizer)
    assert own[2314] == [101, 2314, 102]
    assert len(own) == 30522
    other = Tokenizer(models.WordLevel({"river": 0, "Stone": 1}, unk_token="river"))
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    assert encoder.token_rows(other) == [encoder.tokenizer.encode("river").ids, encoder.tokenizer.encode("stone").ids]


def test_another_pooling_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"pools by pooling_mode_cls_token; only the mean"):
        SentenceEncoder(str(tmp_path))


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


def test_no_text_of_static_vectors() -> None:
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
