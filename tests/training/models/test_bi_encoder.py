"""The bi-encoder and the sentence encoder against a text at a time, transformers' mean pooling, and the paper's triplet loss."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from keyblock.packing import Packed
from keyblock.text.tokenizer import Tokenizer
from tests.support.checkpoints import save_checkpoint
from training.evaluate.scoring import TorchModel
from training.learn.objectives import hinge
from training.model.bi_encoder import BiEncoder
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker
from training.model.sentence_encoder import SentenceEncoder

FAMILY = {"name": "bi_encoder", "scale": 20.0}
TEXTS = st.lists(st.lists(st.integers(1000, 1020), max_size=9), min_size=1, max_size=5)
CLS, SEP = 101, 102


def packed(query: list[int], sentence: list[int], between: tuple[int, ...] = (SEP,), cls: int = CLS) -> Packed:
    head = [cls, *query, *between]
    return Packed(np.asarray([*head, *sentence, between[0]], np.int32), len(head), np.asarray([0]))


@pytest.fixture(scope="module")
def model(tiny_backbone: Path) -> BiEncoder:
    """Weights large enough to tell texts apart."""
    made = new_ranker(FAMILY, str(tiny_backbone)).eval()
    assert isinstance(made, BiEncoder)
    torch.manual_seed(0)
    torch.nn.init.normal_(made.encoder.embeddings.word_embeddings.weight)
    return made


def slow_vector(model: BiEncoder, text: list[int], cls: int = CLS, sep: int = SEP) -> torch.Tensor:
    """Of one text, by itself."""
    ids = torch.tensor([[cls, *text, sep]])
    states: torch.Tensor = model.encoder(input_ids=ids).last_hidden_state
    return F.normalize(states[0].mean(0), dim=0)


@given(queries=TEXTS, sentences=TEXTS)
def test_logits_equal_those_of_each_text_alone(model: BiEncoder, queries: list[list[int]], sentences: list[list[int]]) -> None:
    """Padding in a batch, and queries that come twice, change nothing."""
    pairs = [(query, sentence) for query in queries for sentence in sentences]
    with torch.inference_mode():
        found = model(*model.inputs([packed(*pair) for pair in pairs], 0))
        slow = [20 * slow_vector(model, query) @ slow_vector(model, sentence) for query, sentence in pairs]
    torch.testing.assert_close(found, torch.stack(slow), atol=1e-4, rtol=1e-4)


def test_an_encoder_with_two_special_tokens_between(tmp_path: Path) -> None:
    """RoBERTa packs ``<s> query </s></s> sentence </s>`` and has one type; alone it reads ``<s> text </s>``."""
    model = new_ranker(FAMILY, str(save_checkpoint("roberta", tmp_path))).eval()
    assert isinstance(model, BiEncoder)
    sequences = [packed([20, 21, 22], [30], (2, 2), cls=0), packed([20], [31, 32], (2, 2), cls=0)]
    with torch.inference_mode():
        found = model(*model.inputs(sequences, 1, document_type=0))
        slow = [
            20 * slow_vector(model, query, 0, 2) @ slow_vector(model, text, 0, 2)
            for query, text in (([20, 21, 22], [30]), ([20], [31, 32]))
        ]
    torch.testing.assert_close(found, torch.stack(slow), atol=1e-4, rtol=1e-4)


def test_as_it_comes_it_scores_as_its_authors_do(backbone: Path, tokenizer: Tokenizer) -> None:
    """All-MiniLM-L6-v2: transformers' own tokenizer, states, and the mean that its model card takes; and it finds the answer."""
    query = "Who built the bridge?"
    sentences = ["The bridge is the work of Ada Moss.", "It rains a lot in spring.", "Trains stop here, and people leave them."]
    model = new_ranker(FAMILY, str(backbone)).eval()
    given = [packed(tokenizer.ids(query).tolist(), tokenizer.ids(sentence).tolist()) for sentence in sentences]
    found = TorchModel(model, tokenizer).outputs(given)
    theirs = AutoModel.from_pretrained(backbone).eval()
    batch = AutoTokenizer.from_pretrained(backbone)([query, *sentences], padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = theirs(**batch).last_hidden_state
    real = batch["attention_mask"].unsqueeze(-1)
    vectors = F.normalize((states * real).sum(1) / real.sum(1), dim=1)
    np.testing.assert_allclose(found, 20 * (vectors[1:] @ vectors[0]).numpy(), atol=1e-4)
    assert found.argmax() == 0


def test_the_hinge_is_the_triplet_loss_on_cosines(model: BiEncoder) -> None:
    """PyTorch's own, with the margin 1 / scale, times the scale; two negatives a query."""
    texts = [[1001, 1002], [1003], [1004, 1005], [1006]]
    with torch.inference_mode():
        logits = model(*model.inputs([packed(texts[0], other) for other in texts[1:]], 0))
        anchor, positive, *negatives = (slow_vector(model, text) for text in texts)
        losses = [
            F.triplet_margin_with_distance_loss(
                anchor, positive, negative, distance_function=lambda a, b: 1 - (a * b).sum(-1), margin=1 / 20
            )
            for negative in negatives
        ]
    assert hinge(logits[None]).item() > 0
    torch.testing.assert_close(hinge(logits[None]), 20 * torch.stack(losses).mean(), atol=1e-4, rtol=1e-4)


def test_the_scale_is_the_recipes_and_the_encoder_any_familys(model: BiEncoder, tiny_backbone: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    ranker = CrossEncoder.from_backbone(str(tiny_backbone))
    ranker.save(tmp_path / "cross")
    other = new_ranker({"name": "bi_encoder", "scale": 5}, str(tiny_backbone))
    assert isinstance(other, BiEncoder)
    for name, encoder in (("saved", model.encoder), ("cross", ranker.encoder)):
        other.start_from(tmp_path / name)
        torch.testing.assert_close(other.encoder.state_dict(), encoder.state_dict())
        assert other.scale == 5


def test_what_it_refuses(tiny_backbone: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no states for a learned aggregator"):
        new_ranker(FAMILY, str(tiny_backbone), aggregator={"name": "max"})
    with pytest.raises(ValueError, match="bi_encoder: scale"):
        new_ranker({"name": "bi_encoder", "scale": 0}, str(tiny_backbone))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}), encoding="utf-8")
    with pytest.raises(ValueError, match="only the mean of token states is built in"):
        new_ranker(FAMILY, str(tmp_path))
    with pytest.raises(ValueError, match=r"pools by pooling_mode_cls_token; only the mean"):
        SentenceEncoder(str(tmp_path))


SENTENCES = ["a river", "", "the old stone bridge over the river stands here", "winter", "a river"]


@pytest.fixture(scope="module")
def encoder(tiny_backbone: Path) -> SentenceEncoder:
    return SentenceEncoder(str(tiny_backbone))


def test_vectors_are_means_of_token_states(encoder: SentenceEncoder) -> None:
    """One text at a time, without padding, gives the same."""
    vectors = encoder.encode(encoder.rows(SENTENCES))
    for text, vector in zip(SENTENCES, vectors, strict=True):
        ids = torch.tensor([encoder.tokenizer.encode(text).ids])
        with torch.inference_mode():
            mean = encoder.model(input_ids=ids).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[4])
