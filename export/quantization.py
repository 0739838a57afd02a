"""Products of 8 bits, activations quantised as they come: for CPUs that multiply no bfloat16."""

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

    Weights are signed and have a scale for each column: one scale for a matrix moves the logits of a MiniLM by 8, these by 0.4
    to 0.5 in the mean. They are of 7 bits, -64 to 64: x86 CPUs without VNNI add two products in 16 bits, which 255 x 64 + 255 x 64
    does not fill and weights of 8 bits overflow.
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
                reduce_range=True,
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
