"""Scoring in batches, against scoring one by one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import Preparation
from training.evaluate.scoring import TorchModel, length_batches, score
from training.model.checkpoints import latest
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import pad


@pytest.fixture(scope="module")
def model(toy_run: Path) -> CrossEncoder:
    """A trained one: a random one hardly tells texts apart."""
    return CrossEncoder.load(latest(toy_run))


@pytest.fixture(scope="module")
def sequences(toy: Collection, toy_pipeline: Pipeline) -> list[Packed]:
    """Twenty pairs of very different lengths."""
    preparation = Preparation(toy, toy_pipeline)
    return [preparation.pack("river?", d, 20 + 5 * (i % 16)) for i, d in enumerate(list(toy.documents)[:20])]


@pytest.mark.parametrize("batch_tokens", [1, 200, 8192])
def test_batches_score_like_one_by_one(model: CrossEncoder, sequences: list[Packed], batch_tokens: int) -> None:
    with torch.inference_mode():
        alone = [model(*pad([packed], 0)).item() for packed in sequences]
    together = score(model, sequences, 0, bf16=False, batch_tokens=batch_tokens)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
    assert np.ptp(together) > 0.1
    assert score(model, [], 0).shape == (0,)


def test_the_mode_is_given_back_and_dropout_never_scores(tiny_backbone: Path, sequences: list[Packed]) -> None:
    model = CrossEncoder.from_backbone(str(tiny_backbone), dropout=0.5).train()
    first = score(model, sequences, 0, bf16=False)
    assert model.training
    np.testing.assert_array_equal(first, score(model.eval(), sequences, 0, bf16=False))
    assert not model.training


@given(st.lists(st.integers(1, 600), max_size=60), st.integers(1, 2000))
def test_every_row_once_under_the_tokens(lengths: list[int], batch_tokens: int) -> None:
    batches = list(length_batches(lengths, batch_tokens))
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= batch_tokens
    flat = [lengths[row] for rows in batches for row in rows]
    assert flat == sorted(lengths, reverse=True)


def test_segment_types_are_the_tokenizers(model: CrossEncoder, sequences: list[Packed]) -> None:
    untyped = score(model, sequences, 0, bf16=False, document_type=0)
    assert not np.allclose(untyped, score(model, sequences, 0, bf16=False))


@pytest.fixture(scope="module")
def passages(tiny_backbone: Path) -> CrossEncoder:
    """A model for `states`, with dropout."""
    torch.manual_seed(0)
    model = CrossEncoder.from_backbone(str(tiny_backbone), dropout=0.5, aggregator={"name": "attention"})
    torch.nn.init.normal_(model.head.weight)
    return model


def test_outputs_and_choices_are_the_models(
    passages: CrossEncoder, model: CrossEncoder, sequences: list[Packed], toy_pipeline: Pipeline
) -> None:
    """Outputs have a column for the logit alone in front of the state; what chooses is that logit, or another model's."""
    scorer = TorchModel(passages.train(), toy_pipeline.tokenizer, bf16=False)
    outputs, choices = scorer.outputs(sequences), scorer.choose(sequences)
    assert passages.training
    assert outputs.shape == (len(sequences), 1 + 32)
    passages.eval()
    with torch.inference_mode():
        alone = np.stack([passages.outputs(*pad([packed], 0))[0].numpy() for packed in sequences])
    np.testing.assert_allclose(outputs, alone, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(choices, alone[:, 0], rtol=1e-4, atol=1e-5)
    chooser = TorchModel(passages, toy_pipeline.tokenizer, False, model)
    np.testing.assert_array_equal(chooser.outputs(sequences), outputs)
    np.testing.assert_array_equal(chooser.choose(sequences), score(model, sequences, 0, bf16=False))


def test_states_are_combined_without_gradients(passages: CrossEncoder, sequences: list[Packed], toy_pipeline: Pipeline) -> None:
    scorer = TorchModel(passages.eval(), toy_pipeline.tokenizer, bf16=False)
    states = scorer.outputs(sequences)[:, 1:].reshape(4, 5, 32)
    mask = np.arange(5) < np.asarray([[5], [1], [3], [2]])
    logits = scorer.combine(states, mask)
    assert (logits.shape, logits.dtype) == ((4,), np.float32)
    for i, count in enumerate([5, 1, 3, 2]):
        alone = scorer.combine(states[i : i + 1, :count], mask[i : i + 1, :count])
        np.testing.assert_allclose(logits[i], alone[0], rtol=1e-4)
