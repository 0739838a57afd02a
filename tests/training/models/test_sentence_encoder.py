"""The sentence encoder against a text at a time."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

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


def test_another_pooling_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"pools by pooling_mode_cls_token; only the mean"):
        SentenceEncoder(str(tmp_path))
