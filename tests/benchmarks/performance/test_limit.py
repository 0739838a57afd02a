"""Operations counted by formula, against counting the products one by one and against a hand-worked example."""

from typing import cast

import numpy as np
import pytest

from benchmarks.performance import limit
from benchmarks.performance.limit import Encoder, encoder_of, limit_seconds, openvino_product, peaks
from keyblock.runtime.providers import Precision, ProviderError

MINILM = Encoder(layers=6, hidden=384, intermediate=1536)


def product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns


def test_a_layer_worked_by_hand() -> None:
    """Two tokens, hidden 4, intermediate 8: projections 4 x 64, attention 2 x 32, feed-forward 2 x 128."""
    assert Encoder(layers=1, hidden=4, intermediate=8).operations(2) == 4 * 64 + 2 * 32 + 2 * 128


@pytest.mark.parametrize("length", [1, 37, 512])
def test_the_products_one_by_one(length: int) -> None:
    heads, hidden, wide = 12, MINILM.hidden, MINILM.intermediate
    size = hidden // heads
    projections = 4 * product(length, hidden, hidden)
    attention = heads * (product(length, size, length) + product(length, length, size))
    widening = product(length, hidden, wide) + product(length, wide, hidden)
    assert MINILM.operations(length) == MINILM.layers * (projections + attention + widening)


def test_the_limit_of_a_batch() -> None:
    assert limit_seconds(MINILM, [128, 128], 1e9) == pytest.approx(2 * MINILM.operations(128) / 1e9)


def test_the_sizes_of_a_configuration() -> None:
    class Config:
        num_hidden_layers, hidden_size, intermediate_size = 6, 384, 1536

    assert encoder_of(Config()) == MINILM


def test_peaks_are_measured_without_openvino_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ProviderError("no OpenVINO")

    monkeypatch.setattr(limit, "SIZES", (32, 64))
    monkeypatch.setattr(limit, "openvino_product", missing)
    found = peaks(threads=1, seconds=0.001)
    assert list(found) == ["torch fp32", "torch bf16"]
    assert min(found.values()) > 0


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16, Precision.INT8_STATIC])
def test_a_chain_of_products(precision: Precision) -> None:
    """Each row of ones times a matrix whose columns sum to about 1 is about ones again, in steps of 0.1 where there are steps."""
    try:
        product = openvino_product(256, 1, precision)
    except ProviderError as error:
        pytest.skip(str(error))
    (found,) = cast(list[np.ndarray], product())
    assert found.shape == (256, 256)
    assert found == pytest.approx(np.ones((256, 256)), abs=0.15)
