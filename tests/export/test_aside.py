"""Large weights outside of a graph while it is optimized."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data

from export.storage import put_back, weights_aside

LARGE, SMALL = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(2, np.float32)


@pytest.fixture
def graph() -> ModelProto:
    weights = [numpy_helper.from_array(LARGE, "large"), numpy_helper.from_array(SMALL, "small")]
    return helper.make_model(helper.make_graph([], "g", [], [], weights))


def test_large_weights_leave_the_graph_are_read_as_before_and_come_back(graph: ModelProto) -> None:
    with weights_aside(graph, large=16) as aside:
        large, small = graph.graph.initializer
        assert list(aside) == ["large"]
        assert (large.raw_data, small.raw_data) == (b"", SMALL.tobytes())
        np.testing.assert_array_equal(numpy_helper.to_array(large), LARGE)
        np.testing.assert_array_equal(numpy_helper.to_array(small), SMALL)
    put_back(graph, aside)
    np.testing.assert_array_equal(numpy_helper.to_array(graph.graph.initializer[0]), LARGE)
    assert aside == {}


def test_a_weight_that_was_made_anew_keeps_its_own_values(graph: ModelProto) -> None:
    with weights_aside(graph, large=16) as aside:
        graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * LARGE, "large"))
        np.testing.assert_array_equal(numpy_helper.to_array(graph.graph.initializer[0]), 2 * LARGE)
    put_back(graph, aside)
    np.testing.assert_array_equal(numpy_helper.to_array(graph.graph.initializer[0]), 2 * LARGE)


def test_weights_in_files_are_read_from_there(graph: ModelProto, tmp_path: Path) -> None:
    place = tmp_path / "model.onnx"
    graph.graph.node.append(helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(LARGE, "large")))
    onnx.save(graph, str(place), save_as_external_data=True, location="weights", size_threshold=0, convert_attribute=True)
    lean = onnx.load(str(place), load_external_data=False)
    with weights_aside(lean, tmp_path, large=16) as aside:
        large, small = lean.graph.initializer
        assert list(aside) == ["large"]
        assert (large.raw_data, small.raw_data) == (b"", SMALL.tobytes())
        np.testing.assert_array_equal(numpy_helper.to_array(large), LARGE)
    put_back(lean, aside)
    assert not any(uses_external_data(tensor) for tensor in lean.graph.initializer)
    assert [numpy_helper.to_array(one).tolist() for one in lean.graph.initializer] == [LARGE.tolist(), SMALL.tolist()]
    np.testing.assert_array_equal(numpy_helper.to_array(lean.graph.node[0].attribute[0].t), LARGE)


def test_onnx_reads_as_ever_after_a_failure(graph: ModelProto) -> None:
    read = numpy_helper.to_array
    with pytest.raises(RuntimeError), weights_aside(graph, large=16):
        raise RuntimeError
    assert numpy_helper.to_array is read
