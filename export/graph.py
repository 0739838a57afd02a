"""Tracing a model as an ONNX graph with free sizes, its fusion by ONNX Runtime, and the checks of its form."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnxruntime.transformers.optimizer import optimize_model
from torch import Tensor, nn
from torch.jit._trace import TracerWarning
from transformers import PretrainedConfig

from export import ExportError
from export.storage import put_back, weights_aside
from keyblock.runtime.session import INPUTS
from training.model.ranker_module import RankerModule
from training.model.transformer_ranker import FULL, unchanged

OPSET = 17
LOGITS, OUTPUTS = "logits", "outputs"
FUSED_DOMAIN = "com.microsoft"
SEQUENCES = ("batch", "length")
Change = Callable[[ModelProto], object]
"""A function that changes a graph in place."""


class Traced(nn.Module):
    """What a graph computes with a model's weights: any function of tensors."""

    def __init__(self, model: nn.Module, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.compute = model, compute

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the function gives."""
        return self.compute(*inputs)


def of_sequences(model: RankerModule) -> Traced:
    """What a graph of sequences computes: see RankerModule.outputs; its inputs are the model's `graph_inputs`."""

    def outputs(*inputs: Tensor) -> Tensor:
        given = dict(zip(model.graph_inputs, inputs, strict=True))
        types = given.get("token_type_ids", torch.zeros_like(given["input_ids"]))
        found = model.outputs(given["input_ids"], types, given["attention_mask"])
        # the reshape tells the graph its width, which it does not know of every architecture
        return found.reshape(inputs[0].shape[0], 1 + model.hidden_size) if model.combines else found

    return Traced(model, outputs)


def output_name(model: RankerModule) -> str:
    """The name of a graph's output: LOGITS for logits alone, OUTPUTS for logits with the states that an aggregator combines."""
    return OUTPUTS if model.combines else LOGITS


def trace_example(vocabulary_size: int) -> dict[str, Tensor]:
    """The INPUTS, shape (2, 16), of sequences of two lengths: with one row, tracing would freeze the batch at 1."""
    ids = torch.arange(2 * 16).reshape(2, 16) % vocabulary_size
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    return dict(zip(INPUTS, (ids, torch.zeros_like(ids), mask), strict=True))


def trace(module: nn.Module, example: Mapping[str, Tensor], path: Path, output: str, free: tuple[str, str] = SEQUENCES) -> None:
    """Write a module as an ONNX graph.

    Args:
        module: left in eval mode.
        example: its inputs in the trace, by name in their order; no free dimension may be 1.
        path: where the ONNX file goes.
        output: the name of its only output.
        free: names of the inputs' first two dimensions, which are free; the output's first dimension is the inputs' first.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the exporter is deprecated, but only its graphs are fused
        warnings.simplefilter("ignore", TracerWarning)
        warnings.simplefilter("ignore", UserWarning)  # about the architecture's code, and shapes left open: both are checked later
        torch.onnx.export(
            module.eval(),  # the exporter restores the mode of its module, and with it the model's
            tuple(example.values()),
            str(path),
            input_names=list(example),
            output_names=[output],
            dynamic_axes={name: dict(enumerate(free)) for name in example} | {output: {0: free[0]}},
            opset_version=OPSET,
            dynamo=False,
        )


def optimized_graph(graph: ModelProto, config: PretrainedConfig, folder: Path | None = None) -> ModelProto:
    """The graph, fused by ONNX Runtime; its large weights are kept outside meanwhile: see `weights_aside`."""
    _name_heads(graph, config)
    with weights_aside(graph, folder) as aside:
        optimized: ModelProto = optimize_model(
            graph, model_type="bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size, opt_level=0
        ).model
    put_back(optimized, aside)
    if all(opset.domain != FUSED_DOMAIN for opset in optimized.opset_import):
        optimized.opset_import.append(helper.make_opsetid(FUSED_DOMAIN, 1))  # ONNX Runtime does not need this, other tools do
    return optimized


def _name_heads(graph: ModelProto, config: PretrainedConfig) -> None:
    """Write the number of heads into each reshape to (batch, length, -1, head size), where the optimizer reads it."""
    heads = config.num_attention_heads
    size = config.hidden_size // heads
    constants = {node.output[0]: node.attribute[0].t for node in graph.graph.node if node.op_type == "Constant"}
    for node in graph.graph.node:
        if node.op_type != "Concat" or len(node.input) != 4 or not {*node.input[2:]} <= constants.keys():
            continue
        unknown, last = (constants[name] for name in node.input[2:])
        if numpy_helper.to_array(unknown).tolist() == [-1] and numpy_helper.to_array(last).tolist() == [size]:
            unknown.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [heads]))


def fused_nodes(model: ModelProto) -> dict[str, int]:
    """A graph's fused nodes, by operator."""
    return dict(Counter(node.op_type for node in model.graph.node if node.domain == FUSED_DOMAIN))


def check_fused(model: ModelProto, n_layers: int) -> None:
    """Raise ExportError, naming the operators, unless all of a BERT encoder's patterns were fused."""
    fused = fused_nodes(model)
    expected = {"EmbedLayerNormalization": 1, "Attention": n_layers, "SkipLayerNormalization": 2 * n_layers, "BiasGelu": n_layers}
    wrong = [f"{name} {fused.get(name, 0)} of {count}" for name, count in expected.items() if fused.get(name, 0) != count]
    if wrong:
        raise ExportError(
            f"the graph is not fused ({', '.join(wrong)}) and would run at half its speed; export an encoder of "
            "BERT's architecture, with the locked versions of torch, transformers and onnxruntime"
        )


def check_sequences(graph: ModelProto, model: RankerModule) -> None:
    """Raise ExportError unless a graph of sequences has the model's inputs and output, with batch and length free."""
    outputs: dict[str, list[str | int]] = {OUTPUTS: ["batch", 1 + model.hidden_size]} if model.combines else {LOGITS: ["batch"]}
    check_shapes(graph, {name: list(SEQUENCES) for name in model.graph_inputs}, outputs)


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


def _sizes(given: ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in given.type.tensor_type.shape.dim]


# Attention masks for tracing: those that transformers makes from a mask of real tokens, in operators that a graph can hold.
# transformers' own code (`transformers.masking_utils`) branches on the mask's values, which a trace would freeze.

Spell = Callable[[Tensor], Any]
LOWEST = torch.finfo(torch.float32).min


def spelled_masks(config: PretrainedConfig) -> Spell:
    """For a model of this configuration, the function from a mask (batch, length) to its `attention_mask` in a trace.

    Architectures that make their masks by arithmetic alone (MPNet, DeBERTa), and unknown ones, get the mask itself.
    """
    if config.model_type == "modernbert":
        return local(config.local_attention // 2)
    if is_causal(config):
        return causal
    return padding if config.model_type in FULL else unchanged


def is_causal(config: PretrainedConfig) -> bool:
    """Whether it is a decoder, whose tokens do not see later ones."""
    return config.model_type in ("qwen2", "qwen3")


def padding(mask: Tensor) -> Tensor:
    """An encoder's summand of the attention scores, (batch, 1, length, length): 0 for real tokens, LOWEST for padding.

    It uses the operators that ONNX Runtime's optimizer recognises.
    """
    batch, length = mask.shape
    hidden = 1.0 - mask[:, None, None, :].expand(batch, 1, length, length).to(torch.float32)
    return hidden.masked_fill(hidden.to(torch.bool), LOWEST)


def local(reach: int) -> Spell:
    """ModernBERT's masks: some layers see all tokens, the others those at most `reach` away."""

    def spell(mask: Tensor) -> dict[str, Tensor]:
        everywhere = padding(mask)
        places = torch.arange(mask.shape[1])
        far = (places[None, :] - places[:, None]).abs() > reach
        return {"full_attention": everywhere, "sliding_attention": everywhere.masked_fill(far[None, None], LOWEST)}

    return spell


def causal(mask: Tensor) -> dict[str, Tensor]:
    """A decoder's mask: no token sees later tokens."""
    places = torch.arange(mask.shape[1])
    later = places[None, :] > places[:, None]
    return {"full_attention": padding(mask).masked_fill(later[None, None], LOWEST)}
