"""Removes the weights of graphs, which then take kilobytes, and fills them again on another machine.

A large weight is emptied. Its note (ONNX's doc_string) then says where its numbers come from: a tensor of another graph, a third of
that tensor's columns (a fused attention holds query, key and value side by side), or a seed.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

LARGE = 16 << 10  # bytes
SPREAD = 0.02  # standard deviation of transformers' random weights
BLOCK = 1 << 20  # random numbers; a larger weight repeats them
DTYPES = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}


def hollow(model: ModelProto, source: ModelProto | None = None, rows: Mapping[int, int] | None = None) -> None:
    """Empty the large weights, in place.

    Args:
        model: the graph with its weights.
        source: a graph with the same numbers in float16 or float32; weights that it lacks stay. None: a seed draws new numbers.
        rows: replaces a weight's number of rows by another one when it is filled, for vocabularies.
    """
    known = None if source is None else _known(source)
    for tensor in model.graph.initializer:
        if tensor.data_type not in DTYPES or len(tensor.dims) != 2:
            continue
        values = numpy_helper.to_array(tensor)
        if values.nbytes < LARGE:
            continue
        note: Any = {"seed": zlib.crc32(tensor.name.encode())} if known is None else known.get(_key(values))
        if note is not None:
            sizes = [(rows or {}).get(values.shape[0], values.shape[0]), values.shape[1]]
            name, kind = tensor.name, tensor.data_type
            tensor.CopyFrom(TensorProto(name=name, data_type=kind, dims=sizes, doc_string=json.dumps(note)))


def fill(model: ModelProto, source: ModelProto | None = None) -> None:
    """Fill an emptied graph with weights, in place. Raises KeyError if the source is not the one that `hollow` used."""
    stored = {} if source is None else {tensor.name: tensor for tensor in source.graph.initializer}
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith("{"):
            note, name, dtype = json.loads(tensor.doc_string), tensor.name, DTYPES[tensor.data_type]
            values = _drawn(note["seed"], tuple(tensor.dims)) if "seed" in note else _taken(stored[note["from"]], note["third"])
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values.astype(dtype)), name))


def in_bf16(model: ModelProto) -> None:
    """Convert a graph from float16 to bfloat16, in place. The operators stay the same."""
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16), tensor.name))
    for value in model.graph.value_info:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.BFLOAT16
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.BFLOAT16
            if attribute.t.data_type == TensorProto.FLOAT16:
                values = numpy_helper.to_array(attribute.t)
                attribute.CopyFrom(
                    helper.make_attribute(attribute.name, numpy_helper.from_array(values.astype(ml_dtypes.bfloat16)))
                )


def _known(source: ModelProto) -> dict[bytes, dict[str, Any]]:
    """The note of each matrix of the source, by its numbers."""
    found = {}
    for tensor in source.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.ndim == 2 and values.dtype in (np.float16, np.float32):
            for third in (None, 0, 1, 2) if values.shape[1] == 3 * values.shape[0] else (None,):
                found[_key(_third(values, third))] = {"from": tensor.name, "third": third}
    return found


def _key(values: NDArray[Any]) -> bytes:
    return repr(values.shape).encode() + values.astype(np.float16).astype(ml_dtypes.bfloat16).tobytes()


def _third(values: NDArray[Any], third: int | None) -> NDArray[Any]:
    return values if third is None else np.split(values, 3, axis=1)[third]


def _taken(tensor: TensorProto, third: int | None) -> NDArray[Any]:
    return _third(numpy_helper.to_array(tensor), third)


def _drawn(seed: int, sizes: tuple[int, ...]) -> NDArray[np.float32]:
    block = np.random.default_rng(seed).standard_normal(min(BLOCK, int(np.prod(sizes))), np.float32) * SPREAD
    return np.resize(block.astype(np.float32), sizes)
