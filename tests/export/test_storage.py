from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from export.storage import data_file, save_graph


def doubling(n: int) -> ModelProto:
    """Gives y = x * w with n weights of 2."""
    inputs, outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name in ("x", "y"))
    weights = numpy_helper.from_array(np.full(n, 2.0, np.float32), "w")
    made = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "doubling", [inputs], [outputs], [weights])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def doubled(path: Path, n: int) -> list[float]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    values: list[float] = session.run(None, {"x": np.ones(n, np.float32)})[0].tolist()
    return values


def test_a_small_graph_is_one_file(tmp_path: Path) -> None:
    save_graph(doubling(4), tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert doubled(tmp_path / "model.onnx", 4) == [2.0] * 4


def test_beyond_what_a_file_holds_the_weights_stand_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.storage.LARGEST", 3000)
    for _ in range(2):  # the second one replaces the first
        save_graph(doubling(1000), tmp_path / "model.onnx")
    data = tmp_path / data_file("model.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert data.stat().st_size == 4000
    assert doubled(tmp_path / "model.onnx", 1000) == [2.0] * 1000
    (weights,) = onnx.load(str(tmp_path / "model.onnx")).graph.initializer
    assert numpy_helper.to_array(weights).tolist() == [2.0] * 1000
