"""A repository's own ONNX graph, for a repository without weights that PyTorch can read."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from transformers import PretrainedConfig

from export import ExportError
from export.graph import LOGITS
from export.storage import save_graph
from keyblock.runtime.session import INPUTS

PLACES = ("onnx/model.onnx", "model.onnx")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
FROM_PADDING = {"camembert", "mpnet", "roberta", "xlm-roberta"}  # architectures whose positions begin after the padding id


class GivenGraph:
    """The properties of such a graph that an import needs.

    Args:
        path: the ONNX file.
        config: the checkpoint's configuration.

    Raises ExportError for a file that is no whole graph, and for a graph whose inputs or output are not a cross-encoder's.
    """

    family: ClassVar[Mapping[str, Any]] = {"name": "given"}

    def __init__(self, path: Path, config: PretrainedConfig) -> None:
        self.path, self.config = path, config
        graph = _read(path)
        self.graph_inputs = tuple(given.name for given in graph.input)
        if not set(self.graph_inputs) <= set(INPUTS) or not {"input_ids", "attention_mask"} <= set(self.graph_inputs):
            raise ExportError(f"{path}: has the inputs {', '.join(self.graph_inputs)}; a cross-encoder's are {', '.join(INPUTS)}")
        outputs = {output.name: output.type.tensor_type for output in graph.output}
        self.output = LOGITS if LOGITS in outputs else graph.output[0].name
        kind = outputs[self.output]
        if kind.HasField("shape") and len(kind.shape.dim) != 2:
            raise ExportError(
                f"{path}: its output {self.output} has {len(kind.shape.dim)} dimensions where logits have (batch, labels): it has "
                "no head that scores a pair (a bi-encoder?)"
            )

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence."""
        taken = self.config.pad_token_id + 1 if self.config.model_type in FROM_PADDING else 0
        return int(self.config.max_position_embeddings) - taken

    @property
    def vocabulary_size(self) -> int:
        """Token ids that the model knows."""
        return int(self.config.vocab_size)

    def logits(self, given: Mapping[str, Any]) -> NDArray[np.float32]:
        """The unchanged graph's logits, shape (batch, labels), for the output of transformers' tokenizer. Raises ExportError."""
        inputs = {name: np.asarray(given[name], dtype=np.int64) for name in self.graph_inputs}
        try:
            (found,) = self._session.run([self.output], inputs)
        except Exception as error:  # ONNX Runtime's have no class of their own in common
            problem = " ".join(str(error).split())[:300]
            raise ExportError(f"{self.path}: ONNX Runtime {onnxruntime.__version__} cannot run it ({problem})") from None
        return np.asarray(found, dtype=np.float32).reshape(len(inputs["input_ids"]), -1)

    @cached_property
    def _session(self) -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(str(self.path), providers=["CPUExecutionProvider"])


def _read(path: Path) -> GraphProto:
    """The graph without its weights. Raises ExportError if the graph or a file of its weights is missing or damaged."""
    advice = "copy it again, with all files beside it (a file of a few lines is git-lfs's pointer: git lfs pull)"
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # protobuf's errors, OSError
        raise ExportError(f"{path}: is no whole ONNX graph ({' '.join(str(error).split())[:120]}); {advice}") from None
    for weights in (ExternalDataInfo(tensor) for tensor in graph.initializer if uses_external_data(tensor)):
        file = path.parent / weights.location
        if not file.is_file() or file.stat().st_size < (weights.offset or 0) + (weights.length or 0):
            raise ExportError(f"{path}: its weights are in {weights.location}, which is missing, or not whole; {advice}")
    return graph


def find_graph(source: Path) -> Path | None:
    """The graph of a repository without weights; None if it has weights, or no graph either."""
    if any(next(source.glob(pattern), None) for pattern in WEIGHTS):
        return None
    return next((source / place for place in PLACES if (source / place).is_file()), None)


def export_given(model: GivenGraph, path: Path) -> None:
    """Write the graph with logits of shape (batch,), for two labels their difference."""
    graph = onnx.load(str(model.path))
    _one_logit(graph, model.output, model.config.num_labels)
    save_graph(graph, path)


def _one_logit(model: ModelProto, output: str, labels: int) -> None:
    """Make the output one number for each sequence, in place."""
    graph, given = model.graph, f"{LOGITS}_of_labels"
    for node in graph.node:
        for names in (node.input, node.output):
            kept = [given if name == output else name for name in names]
            del names[:]
            names.extend(kept)
    signs = np.asarray([[1.0]] if labels == 1 else [[-1.0], [1.0]], dtype=np.float32)
    graph.initializer.extend(
        [numpy_helper.from_array(signs, "signs_of_labels"), helper.make_tensor("flat", TensorProto.INT64, [1], [-1])]
    )
    graph.node.append(helper.make_node("MatMul", [given, "signs_of_labels"], ["relevance"], "relevance"))
    graph.node.append(helper.make_node("Reshape", ["relevance", "flat"], [LOGITS], LOGITS))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, ["batch"]))
