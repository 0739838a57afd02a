"""The formula of a transformer's arithmetic, against a count by hand and PyTorch's own counter."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.shapes import SHAPES, Shape, shape_of
from tests.benchmarks.gpu.conftest import TINY_ROBERTA

MINILM = shape_of("minilm-l6")


def test_minilm_by_hand() -> None:
    """A token of 128, in a layer: four projections, the two products of attention, and the two of the feed-forward part."""
    projections, attention, feed_forward = 8 * 384**2, 4 * 128 * 384, 4 * 384 * 1536
    assert (projections, attention, feed_forward) == (1_179_648, 196_608, 2_359_296)
    assert MINILM.encoder.operations(128) == 3_735_552 * 128 * 6 == 2_868_903_936


@pytest.mark.parametrize("shape", [replace(MINILM, vocabulary=100), TINY_ROBERTA], ids=lambda shape: shape.name)
def test_pytorch_counts_the_same_but_for_the_head(shape: Shape) -> None:
    """The head reads [CLS] alone; a vocabulary costs no products."""
    model = shape.peer(torch.float32, torch.device("cpu"))
    model.set_attn_implementation("eager")  # type: ignore[operator]  # the counter does not know every kernel of SDPA
    ids = torch.full((2, 64), 5)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    head = 2 * (2 * shape.hidden**2 + 2 * shape.hidden)
    assert counter.get_total_flops() == 2 * shape.encoder.operations(64) + head


def test_shapes_are_found_by_their_name() -> None:
    assert [shape_of(shape.name) for shape in SHAPES] == list(SHAPES)
