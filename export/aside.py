"""A graph's large weights outside of it, while it is optimized.

ONNX Runtime's optimizer copies the whole graph several times and lets go of none of the copies: four times a model's weights. A
graph does not give memory back either, when a weight is taken out of it: those in files of their own are never put in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

LARGE = 1 << 20  # bytes of a weight that is set aside
Weights = dict[str, bytes | NDArray[np.uint8]]
"""By name: their bytes, or a file of them."""


@contextmanager
def weights_aside(graph: ModelProto, folder: Path | None = None, large: int = LARGE) -> Iterator[Weights]:
    """Take the bytes of large float weights out of a graph; whoever reads such a weight through onnx still gets its values.

    What is made of the graph has them back after `put_back`.

    Args:
        graph: whole, or loaded without its external data.
        folder: where that is; read from there until it is put back.
        large: bytes from which on a weight is large.
    """
    aside: Weights = {}
    if folder is not None:
        _read_from(folder, graph, large, aside)
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
            tensor.raw_data = bytes(aside.pop(tensor.name))
    aside.clear()


def _read_from(folder: Path, graph: ModelProto, large: int, aside: Weights) -> None:
    """What stands in files: large weights stay there, small ones and constants are taken into the graph."""
    constants = [attribute.t for node in graph.graph.node for attribute in node.attribute if attribute.HasField("t")]
    given = [(tensor, tensor.data_type == TensorProto.FLOAT) for tensor in graph.graph.initializer]
    for tensor, stays in [*given, *((constant, False) for constant in constants)]:
        if uses_external_data(tensor):
            info = ExternalDataInfo(tensor)
            values = np.memmap(folder / info.location, np.uint8, "r", info.offset or 0, (info.length,) if info.length else None)
            if stays and len(values) >= large:
                aside[tensor.name] = values
            else:
                tensor.raw_data = bytes(values)
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
