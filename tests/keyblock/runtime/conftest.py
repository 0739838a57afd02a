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
