"""Graphs on disk: in one file, or, if they are too large for that, with their weights in a second file beside it.

A graph made from another may read their common weights from the other's file: ONNX calls this external data.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data, uses_external_data

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


LARGEST = (1 << 31) - (1 << 20)  # the most bytes of weights in a protobuf message, with some room for the nodes
SMALL = 1024  # smaller initializers, in bytes, stay in the graph's own file


def save_graph(model: ModelProto, path: Path) -> None:
    """Write a graph; its weights go into ``<name>.data`` beside it if they have more than LARGEST bytes."""
    data = path.with_name(data_file(path.name))
    data.unlink(missing_ok=True)  # onnx would append to it
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= LARGEST:
        onnx.save(model, str(path))
        return
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=data.name,
        size_threshold=SMALL,
    )


def share_weights(model: ModelProto, other: Path) -> int:
    """Let a graph read equal initializers of at least SMALL bytes from the file of another graph, in place.

    Args:
        model: the graph, which will be stored beside the other file.
        other: an ONNX file with all its weights inside; a file with a ``.data`` beside it shares nothing.

    Returns:
        How many bytes were removed from the graph.
    """
    content = other.read_bytes()
    places: dict[bytes, int] = {}
    end = 0
    for tensor in ModelProto.FromString(content).graph.initializer:  # a protobuf message holds them one after another
        if len(tensor.raw_data) >= SMALL:
            places[tensor.raw_data] = content.index(tensor.raw_data, end)
            end = places[tensor.raw_data] + len(tensor.raw_data)
    shared = [tensor for tensor in model.graph.initializer if tensor.raw_data in places]
    size = sum(len(tensor.raw_data) for tensor in shared)
    for tensor in shared:
        set_external_data(tensor, other.name, places[tensor.raw_data], len(tensor.raw_data))
        tensor.ClearField("raw_data")
    return size


def data_file(graph: str) -> str:
    """The name of the file with a graph's weights.

    >>> data_file("model.onnx")
    'model.onnx.data'
    """
    return f"{graph}.data"
