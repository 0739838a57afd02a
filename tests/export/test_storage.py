from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from export.storage import SMALL, data_file, put_back, save_graph, share_weights, weights_aside

TWOS = np.full(1000, 2, np.float32)


def adding(stored: dict[str, np.ndarray]) -> ModelProto:
    """Gives the sum of its initializers."""
    names = list(stored)
    weights = [numpy_helper.from_array(values, name) for name, values in stored.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    made = helper.make_graph([helper.make_node("Sum", names, ["y"])], "adding", [], [output], weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def summed(path: Path) -> list[float]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    values: list[float] = session.run(None, {})[0].tolist()
    return values


def test_beyond_what_a_file_holds_the_weights_stand_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_graph(adding({"w": TWOS}), tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    monkeypatch.setattr("export.storage.LARGEST", 3000)
    for _ in range(2):  # the second one replaces the first
        save_graph(adding({"w": TWOS}), tmp_path / "model.onnx")
    data = tmp_path / data_file("model.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert data.stat().st_size == 4000
    assert summed(tmp_path / "model.onnx") == TWOS.tolist()
    (weights,) = onnx.load(str(tmp_path / "model.onnx")).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(weights), TWOS)


def test_what_both_graphs_have_is_read_in_the_other_one(tmp_path: Path) -> None:
    """Threes and fours are shared whatever they are called; fives are its own, and so is what is small."""
    n = SMALL // 4
    threes, fours, fives = (np.full(n, value, np.float32) for value in (3, 4, 5))
    save_graph(adding({"a": threes, "b": fours, "c": np.ones(1, np.float32)}), tmp_path / "model.onnx")
    graph = adding({"other": fours, "own": fives, "again": fours, "a": threes, "c": np.ones(1, np.float32)})
    assert share_weights(graph, tmp_path / "model.onnx") == 3 * SMALL
    save_graph(graph, tmp_path / "model.other.onnx")
    content = (tmp_path / "model.onnx").read_bytes()
    places = {}
    for tensor in graph.graph.initializer:
        if uses_external_data(tensor):
            told = ExternalDataInfo(tensor)
            places[tensor.name] = content[told.offset : told.offset + told.length]
    assert places == {"other": fours.tobytes(), "again": fours.tobytes(), "a": threes.tobytes()}
    read = {t.name: numpy_helper.to_array(t) for t in onnx.load(str(tmp_path / "model.other.onnx")).graph.initializer}
    assert {name: values[0] for name, values in read.items()} == {"other": 4, "own": 5, "again": 4, "a": 3, "c": 1}
    assert summed(tmp_path / "model.other.onnx") == [4 + 5 + 4 + 3 + 1] * n


def test_nothing_is_shared_with_a_graph_whose_weights_are_in_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.storage.LARGEST", 3000)
    save_graph(adding({"w": TWOS}), tmp_path / "model.onnx")
    graph = adding({"w": TWOS})
    assert share_weights(graph, tmp_path / "model.onnx") == 0
    assert graph == adding({"w": TWOS})


MANY, FEW = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(2, np.float32)


@pytest.fixture
def graph() -> ModelProto:
    weights = [numpy_helper.from_array(MANY, "large"), numpy_helper.from_array(FEW, "small")]
    return helper.make_model(helper.make_graph([], "g", [], [], weights))


def test_large_weights_leave_the_graph_are_read_as_before_and_come_back(graph: ModelProto) -> None:
    with weights_aside(graph, large=16) as aside:
        large, small = graph.graph.initializer
        assert list(aside) == ["large"]
        assert (large.raw_data, small.raw_data) == (b"", FEW.tobytes())
        np.testing.assert_array_equal(numpy_helper.to_array(large), MANY)
        np.testing.assert_array_equal(numpy_helper.to_array(small), FEW)
    put_back(graph, aside)
    np.testing.assert_array_equal(numpy_helper.to_array(graph.graph.initializer[0]), MANY)
    assert aside == {}


def test_a_weight_that_was_made_anew_keeps_its_own_values(graph: ModelProto) -> None:
    with weights_aside(graph, large=16) as aside:
        graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * MANY, "large"))
        np.testing.assert_array_equal(numpy_helper.to_array(graph.graph.initializer[0]), 2 * MANY)
    put_back(graph, aside)
    np.testing.assert_array_equal(numpy_helper.to_array(graph.graph.initializer[0]), 2 * MANY)


def test_weights_in_files_are_read_from_there(graph: ModelProto, tmp_path: Path) -> None:
    place = tmp_path / "model.onnx"
    graph.graph.node.append(helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(MANY, "large")))
    onnx.save(graph, str(place), save_as_external_data=True, location="weights", size_threshold=0, convert_attribute=True)
    lean = onnx.load(str(place), load_external_data=False)
    with weights_aside(lean, tmp_path, large=16) as aside:
        large, small = lean.graph.initializer
        assert list(aside) == ["large"]
        assert (large.raw_data, small.raw_data) == (b"", FEW.tobytes())
        np.testing.assert_array_equal(numpy_helper.to_array(large), MANY)
    put_back(lean, aside)
    assert not any(uses_external_data(tensor) for tensor in lean.graph.initializer)
    assert [numpy_helper.to_array(one).tolist() for one in lean.graph.initializer] == [MANY.tolist(), FEW.tolist()]
    np.testing.assert_array_equal(numpy_helper.to_array(lean.graph.node[0].attribute[0].t), MANY)


def test_onnx_reads_as_ever_after_a_failure(graph: ModelProto) -> None:
    read = numpy_helper.to_array
    with pytest.raises(RuntimeError), weights_aside(graph, large=16):
        raise RuntimeError
    assert numpy_helper.to_array is read
