"""The arithmetic limit: the operations of a model's matrix products, and the operations a second of this machine."""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import onnxruntime
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper

from keyblock.runtime.providers import Precision, Provider, ProviderError, resolve

SIZES = (1024, 2048)  # rows and columns of the matrices; at least as favourable as the encoder's products
CHAIN = 6  # products in one OpenVINO graph, so that the conversion of its input costs little


class Encoder(NamedTuple):
    """The sizes of a BERT-like encoder that decide its cost."""

    layers: int
    hidden: int
    intermediate: int

    def operations(self, length: int) -> int:
        """Multiplications and additions of the matrix products for one sequence of `length` tokens.

        Each token in each layer: four hidden x hidden projections, the two products of attention with `length` others, and the two
        hidden x intermediate products of the feed-forward part.
        """
        per_token = 8 * self.hidden**2 + 4 * length * self.hidden + 4 * self.hidden * self.intermediate
        return self.layers * length * per_token


def encoder_of(config: object) -> Encoder:
    """The sizes in a Hugging Face configuration."""
    return Encoder(*(int(getattr(config, name)) for name in ("num_hidden_layers", "hidden_size", "intermediate_size")))


def peaks(threads: int, seconds: float = 0.5) -> dict[str, float]:
    """The highest rate of each library's matrix products over several sizes, in operations a second.

    Args:
        threads: compute threads.
        seconds: time for each library and size.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    ways: dict[str, Callable[[int], Callable[[], object]]] = {
        "torch fp32": lambda size: _torch_product(size, torch.float32),
        "torch bf16": lambda size: _torch_product(size, torch.bfloat16),
    }
    found = {way: max(_rate(make(size), 2 * size**3, seconds) for size in SIZES) for way, make in ways.items()}
    torch.set_num_threads(before)
    for precision in (Precision.FP32, Precision.BF16, Precision.INT8_STATIC):
        try:
            products = {size: openvino_product(size, threads, precision) for size in SIZES}
        except ProviderError:  # no OpenVINO, or a CPU without bf16 or VNNI
            continue
        rates = [_rate(product, 2 * size**3 * CHAIN, seconds) for size, product in products.items()]
        found[f"OpenVINO {precision}"] = max(rates)
    return found


def _torch_product(size: int, dtype: torch.dtype) -> Callable[[], object]:
    left, right = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    result = torch.empty(size, size, dtype=dtype)
    return lambda: torch.matmul(left, right, out=result)


def openvino_product(size: int, threads: int, precision: Precision) -> Callable[[], object]:
    """A chain of products of square matrices, as KeyBlock's runtime computes them. Raises ProviderError if the runtime cannot."""
    choice = resolve(Provider.OPENVINO, threads=threads, precision=precision, variants=[precision])
    names = ["x0", *(f"x{number}" for number in range(1, CHAIN)), "y"]
    make = _eight_bits if precision is Precision.INT8_STATIC else _product
    nodes, weights = [], []
    for number in range(CHAIN):
        step, own = make(size, number, names[number], names[number + 1])
        nodes += step
        weights += own
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in ("x0", "y")]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=[name for name, _ in choice.ort_providers],
        provider_options=[o for _, o in choice.ort_providers],
    )
    given = {"x0": np.ones((size, size), np.float32)}
    return lambda: session.run(None, given)


Made = tuple[list[NodeProto], list[TensorProto]]
"""Nodes and their constants."""


def _product(size: int, number: int, given: str, found: str) -> Made:
    values = np.full((size, size), 1 / size + number / size**2, np.float32)
    return [helper.make_node("MatMul", [given, f"w{number}"], [found])], [numpy_helper.from_array(values, f"w{number}")]


def _eight_bits(size: int, number: int, given: str, found: str) -> Made:
    """A product as `export.variants` writes it: activations and weights in steps of 8 bits."""
    w, x = f"w{number}", f"x{number}"
    constants = {
        w: np.ones((size, size), np.int8),
        f"{w}/step": np.full(size, 1 / size + number / size**2, np.float32),
        f"{x}/step": np.float32(0.1),
        f"{x}/zero": np.uint8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", [given, f"{x}/step", f"{x}/zero"], [f"{x}/steps"]),
        helper.make_node("DequantizeLinear", [f"{x}/steps", f"{x}/step", f"{x}/zero"], [f"{x}/again"]),
        helper.make_node("DequantizeLinear", [w, f"{w}/step"], [f"{w}/again"], axis=1),
        helper.make_node("MatMul", [f"{x}/again", f"{w}/again"], [found]),
    ]
    return nodes, [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]


def _rate(work: Callable[[], object], operations: int, seconds: float) -> float:
    """Operations a second of the fastest repetition."""
    work()
    until, best = time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < until:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return operations / best


def limit_seconds(encoder: Encoder, lengths: Iterable[int], peak: float) -> float:
    """The least seconds to score sequences of these lengths, in tokens, at a peak rate."""
    return sum(encoder.operations(length) for length in lengths) / peak
