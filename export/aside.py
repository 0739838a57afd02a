"""A graph's large weights outside of it, while it is optimized.

ONNX Runtime's optimizer copies the whole graph several times and lets go of none of the copies: four times a model's weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper

LARGE = 1 << 20  # bytes of a weight that is set aside
Weights = dict[str, bytes]


@contextmanager
def weights_aside(graph: ModelProto, large: int = LARGE) -> Iterator[Weights]:
    """Take the bytes of large float weights out of a graph; whoever reads such a weight through onnx still gets its values.

    What is made of the graph has them back after `put_back`.
    """
    aside: Weights = {}
    for tensor in graph.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and len(tensor.raw_data) >= large:
            aside[tensor.name] = tensor.raw_data
            tensor.ClearField("raw_data")
    read = numpy_helper.to_array

    def to_array(tensor: TensorProto, *given: Any, **named: Any) -> NDArray[Any]:
        if tensor.name in aside and not tensor.raw_data:
            return np.frombuffer(aside[tensor.name], np.float32).reshape(tuple(tensor.dims))
        return read(tensor, *given, **named)

    numpy_helper.to_array = to_array
    try:
        yield aside
    finally:
        numpy_helper.to_array = read


def put_back(graph: ModelProto, aside: Weights) -> None:
    """Give the weights that are still in a graph their bytes again; takes them out of `aside`."""
    for tensor in graph.graph.initializer:
        if tensor.name in aside and not tensor.raw_data:
            tensor.raw_data = aside.pop(tensor.name)
    aside.clear()
