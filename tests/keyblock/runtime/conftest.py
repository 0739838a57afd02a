from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
MakeGraph = Callable[..., Path]


@pytest.fixture(scope="session")
def make_graph(tmp_path_factory: pytest.TempPathFactory) -> MakeGraph:
    """Writes a graph of plain operators: logit = sum over tokens of mask * (factor * id + type)."""

    def make(
        name: str = "sum", inputs: tuple[str, ...] = INPUTS, shape: tuple[str | int, ...] = ("batch", "length"), factor: float = 0.5
    ) -> Path:
        nodes = [helper.make_node("Cast", [given], [f"{given}_float"], to=TensorProto.FLOAT) for given in INPUTS]
        nodes += [
            helper.make_node("Mul", ["input_ids_float", "factor"], ["scaled"]),
            helper.make_node("Add", ["scaled", "token_type_ids_float"], ["added"]),
            helper.make_node("Mul", ["added", "attention_mask_float"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "axis"], ["logits"], keepdims=0),
        ]
        constants = [
            helper.make_tensor("factor", TensorProto.FLOAT, [], [factor]),
            helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        ]
        for number, given in enumerate(inputs):
            if given != INPUTS[number]:
                nodes.insert(0, helper.make_node("Identity", [given], [INPUTS[number]]))
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info(given, TensorProto.INT64, shape) for given in inputs],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape[:1])],
            constants,
        )
        path = tmp_path_factory.mktemp("graph") / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    return make


@pytest.fixture(scope="session")
def graph(make_graph: MakeGraph) -> Path:
    return make_graph()


@pytest.fixture(scope="session")
def wide_graph(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of `graph` with two columns more: the logit, its half, and its third."""
    model = onnx.load(str(graph))
    constants = [
        helper.make_tensor("shares", TensorProto.FLOAT, [1, 3], [1, 1 / 2, 1 / 3]),
        helper.make_tensor("last", TensorProto.INT64, [1], [1]),
    ]
    model.graph.initializer.extend(constants)
    model.graph.node.append(helper.make_node("Unsqueeze", ["logits", "last"], ["column"]))
    model.graph.node.append(helper.make_node("Mul", ["column", "shares"], ["outputs"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["batch", 3]))
    path = tmp_path_factory.mktemp("graph") / "wide.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def graph_without_openvino(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of `graph` with its sum in a fused node of four outputs, which OpenVINO does not load."""
    model = onnx.load(str(graph))
    nodes = list(model.graph.node)
    place = next(number for number, node in enumerate(nodes) if node.op_type == "Add")
    deep = [helper.make_node("Unsqueeze", [given, "last"], [f"{given}_deep"]) for given in nodes[place].input]
    given, sums = [*(node.output[0] for node in deep), "one"], ["normed", "", "", "added_deep"]
    fused = helper.make_node("SkipLayerNormalization", given, sums, domain="com.microsoft", epsilon=1e-5)
    nodes[place : place + 1] = [*deep, fused, helper.make_node("Squeeze", ["added_deep", "last"], nodes[place].output)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0]))
    model.graph.initializer.append(helper.make_tensor("last", TensorProto.INT64, [1], [2]))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    path = tmp_path_factory.mktemp("graph") / "fused.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def make_aggregator(tmp_path_factory: pytest.TempPathFactory) -> MakeGraph:
    """Writes an aggregator graph: logit = factor * the sum of the real passages' states."""

    def make(
        name: str = "sum",
        states: tuple[str | int, ...] = ("docs", "passages", 2),
        inputs: tuple[str, str] = ("states", "mask"),
        factor: float = 0.5,
    ) -> Path:
        nodes = [
            helper.make_node("Cast", [inputs[1]], ["real"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["real", "last"], ["column"]),
            helper.make_node("Mul", [inputs[0], "column"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "both"], ["sums"], keepdims=0),
            helper.make_node("Mul", ["sums", "factor"], ["logits"]),
        ]
        constants = [
            helper.make_tensor("last", TensorProto.INT64, [1], [2]),
            helper.make_tensor("both", TensorProto.INT64, [2], [1, 2]),
            helper.make_tensor("factor", TensorProto.FLOAT, [], [factor]),
        ]
        graph = helper.make_graph(
            nodes,
            name,
            [
                helper.make_tensor_value_info(inputs[0], TensorProto.FLOAT, states),
                helper.make_tensor_value_info(inputs[1], TensorProto.BOOL, states[:2]),
            ],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, states[:1])],
            constants,
        )
        path = tmp_path_factory.mktemp("aggregator") / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    return make


@pytest.fixture(scope="session")
def aggregator_graph(make_aggregator: MakeGraph) -> Path:
    return make_aggregator()
