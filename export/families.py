"""How each ranker family becomes a graph. Other packages name their families' exports as entry points of GROUP."""

import gc
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor
from transformers import PretrainedConfig

from export import ExportError
from export.graph import (
    LOGITS,
    Traced,
    check_fused,
    check_sequences,
    check_shapes,
    fused_nodes,
    is_causal,
    of_sequences,
    optimized_graph,
    output_name,
    spelled_masks,
    trace,
    trace_example,
)
from export.last_attention import narrow_last_layer
from export.onnx_source import GivenGraph, export_given
from export.storage import save_graph
from keyblock.runtime.aggregator import INPUTS as AGGREGATOR_INPUTS
from keyblock.runtime.session import MARKS
from training.model.bi_encoder import BiEncoder
from training.model.classifier import Classifier
from training.model.cross_encoder import MARKER, CrossEncoder, Marker, first
from training.model.ranker_module import RankerModule
from training.model.starting import PARAMETERS, POOLING
from training.model.transformer_ranker import TRACED, masked_by

GROUP = "keyblock.export.families"
Export = Callable[[Any, Path], None]
Key = tuple[tuple[int, ...], str]
JOINED = 3  # query, key and value of a fused attention
log = logging.getLogger(__name__)


def export_ranker(model: RankerModule | GivenGraph, path: Path) -> None:
    """Write the graph of the model's outputs for sequences. Raises ExportError for a family without one, and as its export does."""
    family = model.family["name"]
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if family in EXPORTS:
        export = EXPORTS[family]
    elif family in others:
        export = others[family].load()
    else:
        known = ", ".join([*EXPORTS, *sorted(others)])
        raise ExportError(f"models of the family {family} cannot be exported; those of {known} can")
    export(model, path)


def export_classifier(model: Classifier, path: Path) -> None:
    """Write the fp32 graph of the model's outputs for sequences to `path`.

    The graph is fused as far as ONNX Runtime knows the architecture; if all of a BERT encoder is fused, its last layer computes
    [CLS] alone.

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes; weights beyond 2 GiB go into a file beside it.

    Raises:
        ExportError: the architecture cannot be traced, or a dimension of the graph is frozen.
    """
    graph = _traced(model, path.name)
    if missing := note_parameters(graph, model.module.state_dict()):
        log.info("the graph does not hold %d of the checkpoint's weights, among them %s", len(missing), missing[0])
    save_graph(graph, path)


def export_cross_encoder(model: CrossEncoder, path: Path) -> None:
    """The same for a model that was trained here; its aggregator is a separate graph.

    Also raises ExportError for an architecture that no graph computes, before anything is traced, and for a BERT that is not fused.
    """
    kind = model.encoder.config.model_type
    if kind not in TRACED:
        raise ExportError(f"a cross-encoder of the architecture {kind} cannot be exported; one of {', '.join(TRACED)} can")
    if model.marker is not None and kind != "bert":
        raise ExportError(f"a {kind} that marks tokens cannot be exported, only a bert; train it with model.marks=0")
    graph = _traced(model, path.name)
    if kind == "bert" and model.typed:
        check_fused(graph, model.encoder.config.num_hidden_layers)
    if model.marker is not None:
        add_marks(graph, model.marker)
    helper.set_model_props(graph, {POOLING: model.settings.pooling})
    save_graph(graph, path)


def _traced(model: Classifier | CrossEncoder, name: str) -> ModelProto:
    """The model's graph, fused as far as ONNX Runtime knows it; `name` is that of the file. Raises as `export_classifier` does."""
    config = model.transformer.config
    example = trace_example(model.vocabulary_size)
    with masked_by(model, spelled_masks(config)), TemporaryDirectory(prefix="keyblock-trace-") as folder:
        path = Path(folder) / name
        try:
            trace(of_sequences(model), {name: example[name] for name in model.graph_inputs}, path, output_name(model))
        except Exception as error:  # any error of a module's own code or the exporter
            line = " ".join(str(error).split())[:200]
            raise ExportError(f"the architecture {config.model_type} cannot be traced ({line})") from None
        gc.collect()  # the exporter leaves copies of the weights in cycles
        graph = _fused(path, config, reads_cls=getattr(model, "pool", first) is first)
        gc.collect()  # so does the optimizer
    check_sequences(graph, model)
    return graph


def _fused(path: Path, config: PretrainedConfig, reads_cls: bool) -> ModelProto:
    """The graph in the file, optimized if the optimizer knows it; with a narrow last layer if all are fused and [CLS] is read."""
    if is_causal(config):
        return onnx.load(str(path))  # attention with fewer key and value heads: the optimizer would break its shapes
    optimized = optimized_graph(onnx.load(str(path), load_external_data=False), config, path.parent)
    if reads_cls and fused_nodes(optimized).get("Attention", 0) == config.num_hidden_layers:
        try:
            narrow_last_layer(optimized)
        except ExportError as error:
            log.info("the last layer computes all tokens: %s", error)
    return optimized


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


def add_marks(model: ModelProto, marker: Marker) -> None:
    """Let a fused encoder's graph mark tokens, in place. Raises ExportError for a graph without fused attention.

    The head reads the last layer's input. See `training.model.cross_encoder.Marker` for its arithmetic.
    """
    graph = model.graph
    attention = next((node for node in reversed(graph.node) if node.op_type == "Attention"), None)
    if attention is None:
        raise ExportError("the graph has no fused attention, so nothing says which states its last layer reads")
    weights = {"inner_w": marker.inner.weight.T, "inner_b": marker.inner.bias, "outer_w": marker.outer.weight.T}
    weights |= {"outer_b": marker.outer.bias}
    graph.initializer.extend(numpy_helper.from_array(_array(tensor), _called(name)) for name, tensor in weights.items())
    graph.initializer.append(helper.make_tensor(_called("axis"), TensorProto.INT64, [1], [2]))
    graph.node.extend(_marking(attention.input[0]))
    graph.output.append(helper.make_tensor_value_info(MARKS, TensorProto.FLOAT, ["batch", "length"]))


def _marking(states: str) -> Iterator[NodeProto]:
    """The nodes from states (batch, length, hidden) to the marks."""
    steps = ("MatMul inner_w", "Add inner_b", "Relu", "MatMul outer_w", "Add outer_b", "Squeeze axis")
    before = states
    for number, step in enumerate(steps):
        kind, *weights = step.split()
        after = MARKS if number == len(steps) - 1 else _called(f"{number}")
        inputs = [before, *map(_called, weights)]
        yield helper.make_node(kind, inputs, [after], name=f"{MARKER}{kind}_{number}")
        before = after


def _called(name: str) -> str:
    return f"{MARKER}{name}"


def _array(tensor: Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.detach().float().contiguous().numpy()
    return values


def export_bi_encoder(model: BiEncoder, path: Path) -> None:
    """Write one fp32 graph, which splits a packed sequence into query and sentence, and outputs their scaled cosine.

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes.

    Raises ExportError for an encoder with one type of segment: the graph could not know where the sentence begins.
    """
    config = model.encoder.config
    if not model.typed:
        raise ExportError(
            f"a bi_encoder on {config.model_type} has one type of segment, and its graph could not tell the query from the "
            "sentence: train it on an encoder with two, like BERT's"
        )
    with masked_by(model, spelled_masks(config)):
        trace(of_sequences(model), dict(zip(model.INPUTS, _example(model.vocabulary_size), strict=True)), path, LOGITS)
    graph = optimized_graph(onnx.load(str(path)), config)
    check_sequences(graph, model)
    save_graph(graph, path)


def _example(vocabulary_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three sequences of different lengths, two with the same query: token ids, types and mask, shape (3, 16)."""
    ids = torch.arange(2, 2 + 3 * 16).reshape(3, 16) % vocabulary_size
    ids[1, :6] = ids[0, :6]
    place, splits, ends = torch.arange(16), torch.tensor([[6], [6], [9]]), torch.tensor([[16], [12], [14]])
    mask = (place < ends).long()
    return ids * mask, (place >= splits).long() * mask, mask


def export_aggregator(model: RankerModule, path: Path) -> None:
    """Write the fp32 graph: states (docs, passages, hidden) and mask (docs, passages) to logits (docs,).

    Args:
        model: a model that combines states; left in eval mode.
        path: where the ONNX file goes.

    Raises:
        ExportError: a dimension of the graph is frozen.
    """
    hidden = model.hidden_size
    mask = torch.tensor([[True, True, True], [True, True, False]])
    states = torch.linspace(-1, 1, mask.numel() * hidden).view(*mask.shape, hidden)
    example = dict(zip(AGGREGATOR_INPUTS, (states, mask), strict=True))
    trace(Traced(model, model.combine), example, path, LOGITS, ("docs", "passages"))
    check_shapes(onnx.load(str(path)), {"states": ["docs", "passages", hidden], "mask": ["docs", "passages"]}, {LOGITS: ["docs"]})


EXPORTS: dict[str, Export] = {
    "cross_encoder": export_cross_encoder,
    "classifier": export_classifier,
    "bi_encoder": export_bi_encoder,
    "judge": export_classifier,
    "given": export_given,
}
"""Exporters by the family's name: each writes the fp32 graph of a model's `outputs`."""
