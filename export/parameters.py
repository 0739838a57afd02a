"""Records where a graph keeps a checkpoint's weights, so that an imported model can be trained further.

The optimizer transposes matrices, joins three into one, and renames all of them. It keeps the values, by which each weight is
found. The graph holds the resulting table; `training.models.starting` reads it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import Tensor

from training.models.starting import PARAMETERS

Key = tuple[tuple[int, ...], str]
JOINED = 3  # query, key and value of a fused attention


def note_parameters(model: ModelProto, weights: Mapping[str, Tensor]) -> list[str]:
    """Write into a graph where each of these weights is; returns the names of weights that are not in it.

    A place is the name of an initializer, whether the weight is transposed there, and its part number and the number of parts along
    the last axis.
    """
    places: dict[Key, tuple[str, int, int]] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            for key, part, parts in _parts(numpy_helper.to_array(tensor)):
                places.setdefault(key, (tensor.name, part, parts))
    table: dict[str, list[str | int | bool]] = {}
    for name, weight in weights.items():
        for transposed in (False, True) if weight.dim() == 2 else (False,):
            values = (weight.T if transposed else weight).contiguous().numpy()
            if (place := places.get(_key(values))) is not None:
                table[name] = [place[0], transposed, *place[1:]]
                break
    helper.set_model_props(model, {**{p.key: p.value for p in model.metadata_props}, PARAMETERS: json.dumps(table)})
    return [name for name in weights if name not in table]


def _parts(values: NDArray[np.float32]) -> Iterator[tuple[Key, int, int]]:
    """The keys of a whole initializer and of its three parts along the last axis, each with its part number and number of parts."""
    yield _key(values), 0, 1
    if values.ndim and values.shape[-1] % JOINED == 0 and values.size > JOINED:
        for part, piece in enumerate(np.split(values, JOINED, axis=-1)):
            yield _key(np.ascontiguousarray(piece)), part, JOINED


def _key(values: NDArray[np.float32]) -> Key:
    return values.shape, hashlib.sha256(values.tobytes()).hexdigest()
