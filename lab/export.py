"""The families' graphs: as PyTorch traces them, or the fused encoder followed by what reads the states of all its layers.

The two parts of a ranker that compares tokens are traced separately and joined, because the optimizer does not fuse a layer whose
states another node also reads. The second part reads all tokens of the last layer, so that is not narrowed to [CLS].
"""

import warnings
from pathlib import Path

import onnx
import torch
from onnx import ModelProto
from torch import Tensor, nn

from export import ExportError
from export.classifier import export_cross_encoder, optimized_graph
from export.graph import OUTPUTS, check_inputs, fused_encoder, output_name, trace, trace_example, trace_sequences
from export.masks import padding, spelled_masks
from export.storage import save_graph
from export.variants import fused_nodes
from keyblock.runtime.session import INPUTS
from lab.models.late_transformer import LateTransformer
from lab.models.long_encoder import LongEncoder
from lab.models.tokens import TokenRanker
from training.model.ranker_module import RankerModule
from training.model.transformer_ranker import masked_by

STATES = "states_{}"  # the name of a layer's states between the two graphs
PREFIX = "features/"  # the prefix of all names in the second graph


def export_long(model: LongEncoder, path: Path) -> dict[str, int]:
    """See `export.classifier.export_cross_encoder`. Also raises ExportError for attention that is directed by the query."""
    if model.settings.query_directed:
        raise ExportError("query-directed attention does not become a fused graph, whose mask is a length; measure the run itself")
    return export_cross_encoder(model, path)


class Outputs(nn.Module):
    """The part of the model that a served graph computes."""

    def __init__(self, model: RankerModule) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        """See RankerModule.outputs."""
        outputs = self.model.outputs(*inputs)
        return outputs.reshape(inputs[0].shape[0], 1 + self.model.hidden_size) if self.model.combines else outputs  # sets the width


def export_plain(model: RankerModule, path: Path) -> dict[str, int]:
    """Write the fp32 graph of the model's outputs for sequences to `path`; it has no fused nodes.

    Args:
        model: of a family that reads ids, types and mask; left in eval mode.
        path: where the ONNX file goes.

    Raises ExportError if a dimension of the graph is frozen.
    """
    ids, mask = trace_example(model.vocabulary_size)
    types = torch.zeros_like(ids)
    types[0, 6:], types[1, 9:12] = 1, 1  # queries of two lengths, since tracing might freeze a single one
    free = {name: {0: "batch", 1: "length"} for name in model.INPUTS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about shapes that the exporter leaves open: checked below
        trace(Outputs(model).eval(), (ids, types, mask), path, output_name(model), free)
    check_inputs(onnx.load(str(path)), 1 + model.hidden_size if model.combines else None)
    return {}


def export_late(model: LateTransformer, path: Path) -> dict[str, int]:
    """The same for late interaction, which encodes query and passage separately; ONNX Runtime fuses the encoder as far as it can.

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes.

    Returns:
        Fused nodes by operator.
    """
    with masked_by(model, spelled_masks(model.encoder.config)):
        export_plain(model, path)
    graph = optimized_graph(onnx.load(str(path)), model.encoder.config)
    check_inputs(graph, 1 + model.hidden_size if model.combines else None)
    save_graph(graph, path)
    return fused_nodes(graph)


class Encoder(nn.Module):
    """The encoder with an explicit attention mask."""

    def __init__(self, model: TokenRanker) -> None:
        super().__init__()
        self.encoder = model.encoder

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The last layer's states, (batch, length, hidden)."""
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": padding(attention_mask)}
        states: Tensor = self.encoder(**given).last_hidden_state
        return states


class Features(nn.Module):
    """The part that reads the layers' states."""

    def __init__(self, model: TokenRanker) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> Tensor:
        """See RankerModule.outputs; reads the INPUTS, then each layer's states (batch, length, hidden), the embeddings first."""
        inputs, layers = given[: len(INPUTS)], given[len(INPUTS) :]
        outputs = self.model.with_logits(self.model.of_layers(layers, *inputs))
        return outputs.reshape(given[0].shape[0], 1 + self.model.hidden_size)  # sets the graph's width


def export_tokens(model: TokenRanker, path: Path) -> dict[str, int]:
    """Write the fp32 graph of the model's outputs for sequences to `path`.

    The aggregator that combines passages is a separate graph (export.graph).

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes.

    Returns:
        Fused nodes by operator.

    Raises:
        ExportError: the encoder is not of BERT's architecture, a fusion is missing, or a dimension of the graph is frozen.
    """
    if (kind := model.encoder.config.model_type) != "bert":
        raise ExportError(f"a {model.family['name']} on a {kind} cannot be exported, which joins BERT's layers; train it on a bert")
    trace_sequences(Encoder(model), model.vocabulary_size, path, "states")
    graph, fused = fused_encoder(path, model.encoder.config)
    _trace_features(model, path)
    _join(graph, onnx.load(str(path)))
    check_inputs(graph, 1 + model.hidden_size)
    onnx.save(graph, str(path))
    return fused


def _trace_features(model: TokenRanker, path: Path) -> None:
    ids, mask = trace_example(model.vocabulary_size)
    layers = [torch.randn(*ids.shape, model.encoder.config.hidden_size) for _ in range(model.channels)]
    free = {name: {0: "batch", 1: "length"} for name in (*INPUTS, *(STATES.format(i) for i in range(len(layers))))}
    trace(Features(model).eval(), (ids, torch.zeros_like(ids), mask, *layers), path, OUTPUTS, free)


def _join(encoder: ModelProto, features: ModelProto) -> None:
    """Append the second graph to the first, in place: its states are the inputs of the fused layers and the last one's output."""
    graph = encoder.graph
    layers = [node.input[0] for node in graph.node if node.op_type == "Attention"] + [graph.output[0].name]
    read = onnx.compose.add_prefix(features, PREFIX, rename_inputs=False, rename_outputs=False).graph
    states = {STATES.format(i): name for i, name in enumerate(layers)}
    for node in read.node:
        node.input[:] = [states.get(name, name) for name in node.input]
    graph.node.extend(read.node)
    graph.initializer.extend(read.initializer)
    graph.output[0].CopyFrom(read.output[0])
