"""Storing a graph's weights in half of the bytes.

Matrices become float16, each with a Cast to float32 after it: activations stay float32 in the graph, so the same file runs in
bf16 through OpenVINO and in fp32 on a plain CPU, and ONNX Runtime removes the casts by constant folding when it loads the graph.
Vectors (biases, layer norms) are small and stay float32.
"""

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from export import ExportError


def halve_weights(model: ModelProto) -> int:
    """Turn every float32 matrix among the initializers into float16 and a Cast, in place.

    Returns:
        How many were converted.

    Raises:
        ExportError: a weight is not finite or too large for float16 (65,504).
    """
    graph = model.graph
    matrices = [t for t in graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) >= 2]
    casts = [_halve(tensor) for tensor in matrices]
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return len(casts)


def _halve(tensor: TensorProto) -> onnx.NodeProto:
    name, values = tensor.name, numpy_helper.to_array(tensor)
    largest = np.abs(values).max(initial=0.0)
    if not largest <= np.finfo(np.float16).max:
        raise ExportError(f"weight {name} holds {largest}, which float16 cannot; export with --precision fp32")
    stored = f"{name}_fp16"
    tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), stored))
    return onnx.helper.make_node("Cast", [stored], [name], f"{name}_to_fp32", to=TensorProto.FLOAT)
