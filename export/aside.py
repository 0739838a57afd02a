"""Keeps a graph's large weights outside of it while it is optimized.

ONNX Runtime's optimizer copies the whole graph several times and frees none of the copies: four times a model's weights. A graph
does not free memory when a weight is removed from it either, so weights in separate files are never loaded into it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

LARGE = 1 << 20  # the least bytes of a weight that is set aside
Weights = dict[str, bytes | NDArray[np.uint8]]
"""Weights by name: their bytes, or a memory-mapped file of them."""


@contextmanager
def weights_aside(graph: ModelProto, folder: Path | None = None, large: int = LARGE) -> Iterator[Weights]:
    """Take the bytes of large float weights out of a graph; code that reads such a weight through onnx still gets its values.

    `put_back` restores them in the resulting graph.

    Args:
        graph: a whole graph, or one loaded without its external data.
        folder: the folder of the external data, which is read from there until it is put back.
        large: the least bytes of a large weight.
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
    """Restore the bytes of the weights that are still in a graph; removes them from `aside`."""
    for tensor in graph.graph.initializer:
        if tensor.name in aside and not tensor.raw_data:
            tensor.raw_data = bytes(aside.pop(tensor.name))
    aside.clear()


def _read_from(folder: Path, graph: ModelProto, large: int, aside: Weights) -> None:
    """Read external data: large weights stay in their files, small weights and constants are loaded into the graph."""
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
