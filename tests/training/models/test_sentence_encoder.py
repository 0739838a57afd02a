"""The teacher against a text at a time, and what is kept of its work."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from training.model.sentence_encoder import SentenceEncoder

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
