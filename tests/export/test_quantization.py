from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from export.variants import quantize
from keyblock.runtime.session import Session


def test_products_are_of_8_bits_and_logits_stay_close(fp32: Path, tmp_path: Path) -> None:
    before, after = fp32, tmp_path / "int8.onnx"
    graph = onnx.load(str(before))
    quantize(graph)
    onnx.save(graph, str(after))
    operators = {node.op_type for node in graph.graph.node}
    assert {"QAttention", "MatMulInteger", "QEmbedLayerNormalization"} <= operators
    assert not operators & {"Attention", "MatMul", "Gemm"}
    matrices = {tensor.data_type for tensor in graph.graph.initializer if len(tensor.dims) > 1}
    assert matrices == {TensorProto.INT8, TensorProto.UINT8}  # the latter are embeddings: rows, not products
    weights = [numpy_helper.to_array(tensor) for tensor in graph.graph.initializer if tensor.data_type == TensorProto.INT8]
    assert max(np.abs(weight.astype(int)).max() for weight in weights) == 64  # two products with 255 fit into 16 bits on any CPU
    assert after.stat().st_size < 0.3 * before.stat().st_size
    random = np.random.default_rng(0)
    ids, mask = random.integers(0, 30522, (64, 48)), np.ones((64, 48), np.int64)
    expected, found = (Session(path, "cpu", threads=1).score(ids, ids * 0, mask) for path in (before, after))
    assert 0 < np.abs(found - expected).mean() < 0.2 * expected.std()
    assert np.corrcoef(found, expected)[0, 1] > 0.98
