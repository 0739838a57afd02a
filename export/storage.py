"""Graphs on disk: in one file, or, beyond what such a file holds, with their weights in a second one beside it."""

from pathlib import Path

import onnx
from onnx import ModelProto

LARGEST = (1 << 31) - (1 << 20)  # bytes of a protobuf message, and some room for the nodes
SMALL = 1024  # bytes of an initializer that stays in the graph's own file


def save_graph(model: ModelProto, path: Path) -> None:
    """Write a graph; its weights go into ``<name>.data`` beside it where they are more than LARGEST bytes."""
    data = path.with_name(data_file(path.name))
    data.unlink(missing_ok=True)  # it would be appended to
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


def data_file(graph: str) -> str:
    """What the file with a graph's weights is called.

    >>> data_file("model.onnx")
    'model.onnx.data'
    """
    return f"{graph}.data"
