from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import parser

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
MakeGraph = Callable[..., Path]


@pytest.fixture(scope="session")
def write_graph(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes a graph, given in ONNX's own notation, into a file of its name."""

    def write(notation: str) -> Path:
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> {notation}')
        path = tmp_path_factory.mktemp("graph") / f"{model.graph.name}.onnx"
        onnx.save(model, path)
        return path

    return write


@pytest.fixture(scope="session")
def make_graph(write_graph: Callable[[str], Path]) -> MakeGraph:
    """Writes a graph of plain operators: logit = sum over tokens of mask * (factor * id + type)."""

    def make(
        name: str = "sum",
        inputs: tuple[str, ...] = INPUTS,
        shape: tuple[str | int, ...] = ("batch", "length"),
        factor: float = 0.5,
        outputs: str = "logits",
        added: str = "added = Add(scaled, types)",
        more: str = "",
    ) -> Path:
        given = ", ".join(f"int64[{shape[0]}, {shape[1]}] {one}" for one in inputs)
        due = f"float[{shape[0]}] logits" if outputs == "logits" else outputs
        return write_graph(f"""{name} ({given}) => ({due})
            <float factor = {{{factor}}}, int64[1] axis = {{1}}, int64[1] last = {{2}}, float[1] one = {{1}},
             float[1, 3] shares = {{1, 0.5, 0.33333334}}>
            {{
                ids = Cast<to = 1>({inputs[0]})
                types = Cast<to = 1>({inputs[1]})
                mask = Cast<to = 1>({inputs[2]})
                scaled = Mul(ids, factor)
                {added}
                masked = Mul(added, mask)
                logits = ReduceSum<keepdims = 0>(masked, axis)
                {more}
            }}""")

    return make


@pytest.fixture(scope="session")
def graph(make_graph: MakeGraph) -> Path:
    return make_graph()


@pytest.fixture(scope="session")
def wide_graph(make_graph: MakeGraph) -> Path:
    """The graph of `graph` with two columns more: the logit, its half, and its third."""
    more = "column = Unsqueeze(logits, axis) \n outputs = Mul(column, shares)"
    return make_graph("wide", outputs="float[batch, 3] outputs", more=more)


@pytest.fixture(scope="session")
def graph_without_openvino(make_graph: MakeGraph) -> Path:
    """The graph of `graph` with its sum in a fused node of four outputs, which OpenVINO does not load."""
    fused = "normed, , , deep = com.microsoft.SkipLayerNormalization<epsilon = 0.00001>(deep_scaled, deep_types, one)"
    deep = "deep_scaled = Unsqueeze(scaled, last) \n deep_types = Unsqueeze(types, last)"
    return make_graph("fused", added=f"{deep} \n {fused} \n added = Squeeze(deep, last)")


@pytest.fixture(scope="session")
def make_aggregator(write_graph: Callable[[str], Path]) -> MakeGraph:
    """Writes an aggregator graph: logit = factor * the sum of the real passages' states."""

    def make(
        name: str = "sum",
        states: tuple[str | int, ...] = ("docs", "passages", 2),
        inputs: tuple[str, str] = ("states", "mask"),
        factor: float = 0.5,
    ) -> Path:
        sizes = ", ".join(map(str, states))
        return write_graph(f"""{name} (float[{sizes}] {inputs[0]}, bool[{states[0]}, {states[1]}] {inputs[1]})
            => (float[{states[0]}] logits) <float factor = {{{factor}}}, int64[1] last = {{2}}, int64[2] both = {{1, 2}}>
            {{
                real = Cast<to = 1>({inputs[1]})
                column = Unsqueeze(real, last)
                masked = Mul({inputs[0]}, column)
                sums = ReduceSum<keepdims = 0>(masked, both)
                logits = Mul(sums, factor)
            }}""")

    return make


@pytest.fixture(scope="session")
def aggregator_graph(make_aggregator: MakeGraph) -> Path:
    return make_aggregator()
