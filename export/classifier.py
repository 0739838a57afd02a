"""A checkpoint, or a cross-encoder on any encoder, as an ONNX graph: exact, and fused as far as ONNX Runtime knows the encoder."""

import gc
import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.transformers.optimizer import optimize_model
from torch import Tensor
from transformers import PretrainedConfig

from export import ExportError
from export.graph import (
    LOGITS,
    OUTPUTS,
    Traced,
    check_shapes,
    export_graph,
    name_heads,
    narrow_last_layer,
    output_name,
    trace,
    trace_example,
)
from export.masks import causal, spelled_masks
from export.storage import put_back, save_graph, weights_aside
from export.variants import fused_nodes
from training.model.classifier import Classifier
from training.model.cross_encoder import CrossEncoder, first
from training.model.starting import PARAMETERS, POOLING
from training.model.transformer_ranker import TRACED, masked_by

Key = tuple[tuple[int, ...], str]
JOINED = 3  # query, key and value of a fused attention


def note_parameters(model: ModelProto, weights: Mapping[str, Tensor]) -> list[str]:
    """Write into a graph where each of these weights is; returns the names of weights that are not in it.

    A place is the name of an initializer, whether the weight is transposed there, and its part number and the number of parts along
    the last axis.
    """
    places: dict[Key, tuple[str, int, int]] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            for key, part, parts in _parts(numpy_helper.to_array(tensor)):
                places.setdefault(key, (tensor.name, part, parts))
    table: dict[str, list[str | int | bool]] = {}
    for name, weight in weights.items():
        for transposed in (False, True) if weight.dim() == 2 else (False,):
            values = (weight.T if transposed else weight).contiguous().numpy()
            if (place := places.get(_key(values))) is not None:
                table[name] = [place[0], transposed, *place[1:]]
                break
    helper.set_model_props(model, {**{p.key: p.value for p in model.metadata_props}, PARAMETERS: json.dumps(table)})
    return [name for name in weights if name not in table]


def _parts(values: NDArray[np.float32]) -> Iterator[tuple[Key, int, int]]:
    """The keys of a whole initializer and of its three parts along the last axis, each with its part number and number of parts."""
    yield _key(values), 0, 1
    if values.ndim and values.shape[-1] % JOINED == 0 and values.size > JOINED:
        for part, piece in enumerate(np.split(values, JOINED, axis=-1)):
            yield _key(np.ascontiguousarray(piece)), part, JOINED


def _key(values: NDArray[np.float32]) -> Key:
    return values.shape, hashlib.sha256(values.tobytes()).hexdigest()


log = logging.getLogger(__name__)


def export_classifier(model: Classifier, path: Path) -> dict[str, int]:
    """Write the fp32 graph of the model's outputs for sequences to `path`.

    The graph is fused as far as ONNX Runtime knows the architecture; if all of a BERT encoder is fused, its last layer computes
    [CLS] alone.

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes; weights beyond 2 GiB go into a file beside it.

    Returns:
        Fused nodes by operator; empty if nothing was fused.

    Raises:
        ExportError: the architecture cannot be traced, or a dimension of the graph is frozen.
    """
    graph = _traced(model, path.name)
    if missing := note_parameters(graph, model.module.state_dict()):
        log.info("the graph does not hold %d of the checkpoint's weights, among them %s", len(missing), missing[0])
    save_graph(graph, path)
    return fused_nodes(graph)


def export_cross_encoder(model: CrossEncoder, path: Path) -> dict[str, int]:
    """See `export.graph.export_graph`; of another architecture than BERT's the graph is fused as far as ONNX Runtime knows it.

    Raises ExportError as `check_exported` does, before anything is traced.
    """
    check_exported(model)
    if model.encoder.config.model_type == "bert" and model.typed:
        return export_graph(model, path)
    graph = _traced(model, path.name)
    onnx.helper.set_model_props(graph, {POOLING: model.settings.pooling})
    save_graph(graph, path)
    return fused_nodes(graph)


def check_exported(model: CrossEncoder) -> None:
    """Raise ExportError for a cross-encoder that does not become a graph."""
    kind = model.encoder.config.model_type
    if kind not in TRACED:
        raise ExportError(f"a cross-encoder of the architecture {kind} cannot be exported; one of {', '.join(TRACED)} can")
    if model.marker is not None and kind != "bert":
        raise ExportError(f"a {kind} that marks tokens cannot be exported, only a bert; train it with model.marks=0")


class Wide(Traced):
    """The same for a model whose states an aggregator combines: the graph knows their width."""

    def forward(self, *inputs: Tensor) -> Tensor:
        """See Traced."""
        return super().forward(*inputs).reshape(inputs[0].shape[0], 1 + self.model.hidden_size)


def _traced(model: Classifier | CrossEncoder, name: str) -> ModelProto:
    """The model's graph, fused as far as ONNX Runtime knows it; `name` is that of the file. Raises as `export_classifier` does."""
    config = model.transformer.config
    with masked_by(model, spelled_masks(config)), TemporaryDirectory(prefix="keyblock-trace-") as folder:
        _trace(model, Path(folder) / name)
        gc.collect()  # the exporter leaves copies of the weights in cycles
        graph = _fused(Path(folder) / name, config, reads_cls=getattr(model, "pool", first) is first)
        gc.collect()  # so does the optimizer
    outputs: dict[str, list[str | int]] = {OUTPUTS: ["batch", 1 + model.hidden_size]} if model.combines else {LOGITS: ["batch"]}
    check_shapes(graph, {name: ["batch", "length"] for name in model.graph_inputs}, outputs)
    return graph


def _trace(model: Classifier | CrossEncoder, path: Path) -> None:
    ids, mask = trace_example(model.vocabulary_size)
    by_name = {"input_ids": ids, "token_type_ids": torch.zeros_like(ids), "attention_mask": mask}
    given = tuple(by_name[name] for name in model.graph_inputs)
    free = {name: {0: "batch", 1: "length"} for name in model.graph_inputs}
    module = Wide(model) if model.combines else Traced(model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about the architecture's code; parity is checked by its values
            trace(module.eval(), given, path, output_name(model), free)
    except Exception as error:  # any error of a module's own code or the exporter
        line = " ".join(str(error).split())[:200]
        raise ExportError(f"the architecture {model.transformer.config.model_type} cannot be traced ({line})") from None


def _fused(path: Path, config: PretrainedConfig, reads_cls: bool) -> ModelProto:
    """The graph in the file, optimized if the optimizer knows it; with a narrow last layer if all are fused and [CLS] is read."""
    if spelled_masks(config).__qualname__.startswith(causal.__qualname__):
        return onnx.load(str(path))  # attention with fewer key and value heads: the optimizer would break its shapes
    optimized = optimized_graph(onnx.load(str(path), load_external_data=False), config, path.parent)
    if reads_cls and fused_nodes(optimized).get("Attention", 0) == config.num_hidden_layers:
        try:
            narrow_last_layer(optimized)
        except ExportError as error:
            log.info("the last layer computes all tokens: %s", error)
    return optimized


def optimized_graph(graph: ModelProto, config: PretrainedConfig, folder: Path | None = None) -> ModelProto:
    """The graph, fused by ONNX Runtime; its large weights are kept outside meanwhile: see `weights_aside`."""
    name_heads(graph, config)
    with weights_aside(graph, folder) as aside:
        optimized: ModelProto = optimize_model(
            graph, model_type="bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size, opt_level=0
        ).model
    put_back(optimized, aside)
    declare_fused(optimized)
    return optimized


def declare_fused(graph: ModelProto) -> None:
    """Declare ONNX Runtime's own operators in the graph: ONNX Runtime does not need that, other tools do."""
    if all(opset.domain != "com.microsoft" for opset in graph.opset_import):
        graph.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
