"""Graphs on disk: in one file, or, if they are too large for that, with their weights in a second file beside it.

A graph made from another may read their common weights from the other's file: ONNX calls this external data.
"""

from pathlib import Path

import onnx
from onnx import ModelProto
from onnx.external_data_helper import set_external_data

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
