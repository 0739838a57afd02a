import json

import numpy as np
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from export.classifier import note_parameters
from training.model.starting import PARAMETERS, stored_parameters


def graph_of(**values: np.ndarray) -> ModelProto:
    made = helper.make_graph([], "graph", [], [], [numpy_helper.from_array(value, name) for name, value in values.items()])
    return helper.make_model(made)


def test_weights_are_found_whole_transposed_and_joined() -> None:
    rng = np.random.default_rng(0)
    query, key, value, dense = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(4))
    bias = rng.normal(size=4).astype(np.float32)
    graph = graph_of(renamed=dense, joined=np.concatenate([query.T, key.T, value.T], axis=1), b=bias, ids=np.arange(3))
    weights = {"query": query, "key": key, "value": value, "dense": dense, "bias": bias, "twin": bias, "lost": query + 1}
    missing = note_parameters(graph, {name: torch.from_numpy(values) for name, values in weights.items()})
    assert missing == ["lost"]
    table = json.loads(next(property.value for property in graph.metadata_props if property.key == PARAMETERS))
    assert table["dense"] == ["renamed", False, 0, 1]
    assert table["key"] == ["joined", True, 1, 3]
    for name, values in dict(stored_parameters(graph, table)).items():
        np.testing.assert_array_equal(values.numpy(), weights[name])


def test_weights_of_half_the_bytes_are_read_behind_their_cast() -> None:
    weight = np.asarray([[0.5, 0.25], [2.0, 1.0]], dtype=np.float32)
    graph = graph_of(w=weight)
    assert note_parameters(graph, {"weight": torch.from_numpy(weight)}) == []
    table = json.loads(graph.metadata_props[0].value)
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight.astype(np.float16), "w_fp16"))
    graph.graph.node.append(helper.make_node("Cast", ["w_fp16"], ["w"], to=TensorProto.FLOAT))
    np.testing.assert_array_equal(dict(stored_parameters(graph, table))["weight"].numpy(), weight)
