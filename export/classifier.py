"""An imported checkpoint as an ONNX graph: fused as far as ONNX Runtime knows its architecture, and exact in any case."""

import gc
import logging
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import torch
from onnx import ModelProto
from onnxruntime.transformers.optimizer import optimize_model
from transformers import PretrainedConfig

from export import ExportError
from export.aside import put_back, weights_aside
from export.graph import LOGITS, Traced, check_shapes, name_heads, narrow_last_layer, trace, trace_example
from export.masks import causal, spelled_masks
from export.parameters import note_parameters
from export.storage import save_graph
from export.variants import fused_nodes
from training.models.classifier import Classifier
from training.models.transformer_ranker import masked_by

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
    config = model.module.config
    with masked_by(model, spelled_masks(config)), TemporaryDirectory(prefix="keyblock-trace-") as folder:
        _trace(model, Path(folder) / path.name)
        gc.collect()  # the exporter leaves copies of the weights in cycles
        graph = _fused(Path(folder) / path.name, config)
        gc.collect()  # so does the optimizer
    check_shapes(graph, {name: ["batch", "length"] for name in model.graph_inputs}, {LOGITS: ["batch"]})
    if missing := note_parameters(graph, model.module.state_dict()):
        log.info("the graph does not hold %d of the checkpoint's weights, among them %s", len(missing), missing[0])
    save_graph(graph, path)
    return fused_nodes(graph)


def _trace(model: Classifier, path: Path) -> None:
    ids, mask = trace_example(model.vocabulary_size)
    by_name = {"input_ids": ids, "token_type_ids": torch.zeros_like(ids), "attention_mask": mask}
    given = tuple(by_name[name] for name in model.graph_inputs)
    free = {name: {0: "batch", 1: "length"} for name in model.graph_inputs}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about the architecture's code; parity is checked by its values
            trace(Traced(model).eval(), given, path, LOGITS, free)
    except Exception as error:  # any error of a module's own code or the exporter
        line = " ".join(str(error).split())[:200]
        raise ExportError(f"the architecture {model.module.config.model_type} cannot be traced ({line})") from None


def _fused(path: Path, config: PretrainedConfig) -> ModelProto:
    """The graph in the file, optimized if the optimizer knows such graphs, with a narrow last layer if all layers are fused."""
    if spelled_masks(config).__qualname__.startswith(causal.__qualname__):
        return onnx.load(str(path))  # attention with fewer key and value heads: the optimizer would break its shapes
    optimized = optimized_graph(onnx.load(str(path), load_external_data=False), config, path.parent)
    if fused_nodes(optimized).get("Attention", 0) == config.num_hidden_layers:
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
