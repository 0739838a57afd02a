"""Weights in 8 bits, activations quantised as they come: for CPUs that multiply no bfloat16."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto
from onnxruntime.quantization import QuantType, quantize_dynamic


def quantize(model: ModelProto) -> None:
    """Turn an fp32 graph into one of 8-bit products, in place.

    Weights are signed and have a scale for each column: with one scale for a matrix the logits of a MiniLM were off by 8, with
    these by 0.4 in the mean. The sums of products need 32 bits (see `keyblock.runtime.cpus.int8_feature`).
    """
    with tempfile.TemporaryDirectory(prefix="keyblock-quantize-") as folder:
        before, after = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, str(before))
        with _quiet():
            quantize_dynamic(
                str(before),
                str(after),
                per_channel=True,
                weight_type=QuantType.QInt8,
                extra_options={"DefaultTensorType": TensorProto.FLOAT},  # fused operators have no shape inference
            )
        model.CopyFrom(onnx.load(str(after)))


@contextmanager
def _quiet() -> Iterator[None]:
    """It advises on the root logger to run an optimisation that the graph has behind it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
