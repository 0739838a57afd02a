"""8-bit products with dynamically quantised activations: for CPUs without bfloat16 products."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto
from onnxruntime.quantization import QuantType, quantize_dynamic


def quantize(model: ModelProto) -> None:
    """Convert an fp32 graph to 8-bit products, in place.

    Weights are signed and have a scale for each column: one scale for a whole matrix moves the logits of a MiniLM by 8 on average,
    a scale for each column by 0.4 to 0.5. Weights have 7 bits, -64 to 64: x86 CPUs without VNNI add two products in 16 bits, which
    255 x 64 + 255 x 64 fits and 8-bit weights overflow.
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
    """Silence the root logger, on which the quantizer advises an optimisation that was already done."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
