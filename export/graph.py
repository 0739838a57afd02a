"""The learned aggregator, from passages' states to a document's logit, as an ONNX graph with free sizes."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.transformers.optimizer import optimize_model
from torch import Tensor, nn
from torch.jit._trace import TracerWarning
from transformers import PretrainedConfig

from export import ExportError
from export.masks import padding
from keyblock.runtime.aggregator import INPUTS as AGGREGATOR_INPUTS
from keyblock.runtime.session import INPUTS, MARKS
from training.model.cross_encoder import MARKER, CrossEncoder, Marker
from training.model.ranker_module import RankerModule
from training.model.starting import POOLING
from training.model.transformer_ranker import masked_by


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
    graph.node.extend(_nodes(attention.input[0]))
    graph.output.append(helper.make_tensor_value_info(MARKS, TensorProto.FLOAT, ["batch", "length"]))


def _nodes(states: str) -> Iterator[NodeProto]:
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


OPSET = 17
LOGITS, OUTPUTS = "logits", "outputs"
CLS_POSITION = "cls_position"  # the initializer with the position of [CLS], for a narrowed last layer


class Traced(nn.Module):
    """The model with the inputs of its graph."""

    def __init__(self, model: RankerModule) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        """See RankerModule.outputs; (batch, length) integer tensors, named by the model's `graph_inputs`."""
        given = dict(zip(self.model.graph_inputs, inputs, strict=True))
        types = given.get("token_type_ids", torch.zeros_like(given["input_ids"]))
        return self.model.outputs(given["input_ids"], types, given["attention_mask"])


def output_name(model: RankerModule) -> str:
    """The name of a graph's output: LOGITS for logits alone, OUTPUTS for logits with the states that an aggregator combines."""
    return OUTPUTS if model.combines else LOGITS


def export_graph(model: CrossEncoder, path: Path) -> dict[str, int]:
    """Write the fused fp32 graph of the outputs of a cross-encoder of BERT's architecture for sequences to `path`.

    The aggregator is a separate graph (export.graph). Other architectures: export.classifier.

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes.

    Returns:
        Fused nodes by operator.

    Raises:
        ExportError: a fusion is missing, or a dimension of the graph is frozen.
    """
    config = model.encoder.config
    with masked_by(model, padding):
        trace_sequences(Traced(model), config.vocab_size, path, output_name(model))
    graph, fused = fused_encoder(path, config)
    if model.settings.pooling == "cls":
        narrow_last_layer(graph)
    check_inputs(graph, 1 + config.hidden_size if model.combines else None)
    if model.marker is not None:
        add_marks(graph, model.marker)
    onnx.helper.set_model_props(graph, {POOLING: model.settings.pooling})
    onnx.save(graph, str(path))
    return fused


def trace_sequences(module: nn.Module, vocabulary_size: int, path: Path, output: str) -> None:
    """Write the graph of a module that reads the INPUTS, each (batch, length)."""
    ids, mask = trace_example(vocabulary_size)
    free = {name: {0: "batch", 1: "length"} for name in INPUTS}
    # the exporter restores the mode of its module, and with it the model's
    trace(module.eval(), (ids, torch.zeros_like(ids), mask), path, output, free)


def fused_encoder(path: Path, config: PretrainedConfig) -> tuple[ModelProto, dict[str, int]]:
    """The fused graph of a file that ends in a BERT encoder, and its fused nodes by operator. Raises as `check_fused` does."""
    graph = onnx.load(str(path))
    name_heads(graph, config)
    optimized = optimize_model(
        graph, model_type="bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size, opt_level=0
    )
    fused = {name: count for name, count in optimized.get_fused_operator_statistics().items() if count}
    check_fused(fused, config.num_hidden_layers)
    optimized.model.opset_import.append(
        onnx.helper.make_opsetid("com.microsoft", 1)
    )  # ONNX Runtime does not need this, other tools do
    return optimized.model, fused


def trace_example(vocabulary_size: int) -> tuple[Tensor, Tensor]:
    """Token ids and their mask, shape (2, 16), with two lengths: with one row, tracing would freeze the batch at 1."""
    ids = torch.arange(2 * 16).reshape(2, 16) % vocabulary_size
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    return ids, mask


def trace(module: nn.Module, example: tuple[Tensor, ...], path: Path, output: str, free: dict[str, dict[int, str]]) -> None:
    """Write a module as an ONNX graph.

    Args:
        module: in eval mode.
        example: its inputs in the trace; no free dimension may be 1.
        path: where the ONNX file goes.
        output: the name of its only output.
        free: names of the free dimensions, by input, in the inputs' order; the output's first dimension is the inputs' first.
    """
    first = next(iter(free.values()))[0]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the exporter is deprecated; the module's docstring says why it is used
        warnings.simplefilter("ignore", TracerWarning)
        warnings.filterwarnings("ignore", "Exporting a model to ONNX with a batch_size")  # about GRUs, which get their first states
        warnings.filterwarnings("ignore", "Constant folding")  # loading the graph folds the rest
        torch.onnx.export(
            module,
            example,
            str(path),
            input_names=list(free),
            output_names=[output],
            dynamic_axes=free | {output: {0: first}},
            opset_version=OPSET,
            dynamo=False,
        )


def name_heads(graph: ModelProto, config: PretrainedConfig) -> None:
    """Write the number of heads into each reshape to (batch, length, -1, head size), where the optimizer reads it."""
    heads = config.num_attention_heads
    size = config.hidden_size // heads
    constants = {node.output[0]: node.attribute[0].t for node in graph.graph.node if node.op_type == "Constant"}
    for node in graph.graph.node:
        if node.op_type != "Concat" or len(node.input) != 4 or not {*node.input[2:]} <= constants.keys():
            continue
        unknown, last = (constants[name] for name in node.input[2:])
        if numpy_helper.to_array(unknown).tolist() == [-1] and numpy_helper.to_array(last).tolist() == [size]:
            unknown.CopyFrom(onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [heads]))


def narrow_last_layer(model: ModelProto) -> None:
    """Let the last layer compute only [CLS] after its attention, since the head reads nothing else. Exact, and 7 to 18% faster.

    Raises ExportError if the graph does not end in a layer of a BERT encoder.
    """
    graph = model.graph
    nodes = list(graph.node)
    last = max(i for i, node in enumerate(nodes) if node.op_type == "Attention")
    mixed, states = nodes[last].output[0], nodes[last].input[0]
    readers = [node for node in nodes[last + 1 :] if mixed in node.input or states in node.input]
    if sorted(node.op_type for node in readers) != ["MatMul", "SkipLayerNormalization"]:
        raise ExportError(f"the last attention is read by {[node.op_type for node in readers]}: not a layer of a BERT encoder")
    graph.initializer.append(onnx.helper.make_tensor(CLS_POSITION, onnx.TensorProto.INT64, [1], [0]))
    for name in (mixed, states):
        nodes.insert(last + 1, onnx.helper.make_node("Gather", [name, CLS_POSITION], [f"{name}_cls"], f"{name}_cls", axis=1))
    for node in readers:
        inputs = [f"{name}_cls" if name in (mixed, states) else name for name in node.input]
        del node.input[:]
        node.input.extend(inputs)
    del graph.node[:]
    graph.node.extend(nodes)


def check_fused(fused: dict[str, int], n_layers: int) -> None:
    """Raise ExportError, naming the operators, unless all of a BERT encoder's patterns were fused."""
    expected = {"EmbedLayerNormalization": 1, "Attention": n_layers, "SkipLayerNormalization": 2 * n_layers, "BiasGelu": n_layers}
    wrong = [f"{name} {fused.get(name, 0)} of {count}" for name, count in expected.items() if fused.get(name, 0) != count]
    if wrong:
        raise ExportError(
            f"the graph is not fused ({', '.join(wrong)}) and would run at half its speed; export an encoder of "
            "BERT's architecture, with the locked versions of torch, transformers and onnxruntime"
        )


def check_inputs(model: ModelProto, width: int | None = None) -> None:
    """Raise ExportError unless an encoder's inputs and output are those that a session expects, with batch and length free.

    Args:
        model: the graph.
        width: columns of the output; None: logits alone.
    """
    due: dict[str, list[str | int]] = {name: ["batch", "length"] for name in INPUTS}
    check_shapes(model, due, {LOGITS: ["batch"]} if width is None else {OUTPUTS: ["batch", width]})


def check_shapes(model: ModelProto, inputs: dict[str, list[str | int]], outputs: dict[str, list[str | int]]) -> None:
    """Raise ExportError unless the graph maps these inputs, in order, to these outputs; a name means a free dimension."""
    found = [{given.name: _sizes(given) for given in part} for part in (model.graph.input, model.graph.output)]
    names = [list(part) for part in found]
    if names != [list(inputs), list(outputs)]:
        raise ExportError(f"the graph maps {names[0]} to {names[1]}, not {list(inputs)} to {list(outputs)}")
    for name, sizes in (inputs | outputs).items():
        given = (found[0] | found[1])[name]
        if given != sizes:
            free = " and ".join(size for size in inputs[names[0][0]] if isinstance(size, str))
            raise ExportError(f"{name} has shape {given}, not {sizes}: {free} must be free")


def _sizes(given: onnx.ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in given.type.tensor_type.shape.dim]


class TraceableAggregator(nn.Module):
    """The part of the model that turns passages' states into a document's logit."""

    def __init__(self, model: RankerModule) -> None:
        super().__init__()
        self.model = model

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """See RankerModule.combine."""
        return self.model.combine(states, mask)


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
    free = {name: {0: "docs", 1: "passages"} for name in AGGREGATOR_INPUTS}
    trace(TraceableAggregator(model).eval(), (states, mask), path, LOGITS, free)
    check_shapes(onnx.load(str(path)), {"states": ["docs", "passages", hidden], "mask": ["docs", "passages"]}, {LOGITS: ["docs"]})
