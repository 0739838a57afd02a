"""The families' graphs: as PyTorch traces them, or the fused encoder followed by what reads the states of all its layers.

The two parts of a ranker that compares tokens are traced separately and joined, because the optimizer does not fuse a layer whose
states another node also reads. The second part reads all tokens of the last layer, so that is not narrowed to [CLS].
"""

from pathlib import Path

import onnx
import torch
from onnx import ModelProto
from torch import Tensor

from export import ExportError
from export.families import export_cross_encoder
from export.graph import (
    OUTPUTS,
    Traced,
    check_fused,
    check_sequences,
    of_sequences,
    optimized_graph,
    output_name,
    padding,
    spelled_masks,
    trace,
    trace_example,
)
from export.storage import save_graph
from keyblock.runtime.session import INPUTS
from lab.models.late_transformer import LateTransformer
from lab.models.long_encoder import LongEncoder
from lab.models.tokens import TokenRanker
from training.model.ranker_module import RankerModule
from training.model.transformer_ranker import masked_by

STATES = "states_{}"  # the name of a layer's states between the two graphs
PREFIX = "features/"  # the prefix of all names in the second graph


def export_long(model: LongEncoder, path: Path) -> None:
    """See `export.families.export_cross_encoder`. Also raises ExportError for attention that is directed by the query."""
    if model.settings.query_directed:
        raise ExportError("query-directed attention does not become a fused graph, whose mask is a length; measure the run itself")
    export_cross_encoder(model, path)


def export_plain(model: RankerModule, path: Path) -> None:
    """Write the fp32 graph of the model's outputs for sequences to `path`; it has no fused nodes.

    Args:
        model: of a family that reads ids, types and mask; left in eval mode.
        path: where the ONNX file goes.

    Raises ExportError if a dimension of the graph is frozen.
    """
    example = trace_example(model.vocabulary_size)
    types = example["token_type_ids"]
    types[0, 6:], types[1, 9:12] = 1, 1  # queries of two lengths, since tracing might freeze a single one
    trace(of_sequences(model), example, path, output_name(model))
    check_sequences(onnx.load(str(path)), model)


def export_late(model: LateTransformer, path: Path) -> None:
    """The same for late interaction, which encodes query and passage separately; ONNX Runtime fuses the encoder as far as it can.

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes.
    """
    with masked_by(model, spelled_masks(model.encoder.config)):
        export_plain(model, path)
    graph = optimized_graph(onnx.load(str(path)), model.encoder.config)
    check_sequences(graph, model)
    save_graph(graph, path)


def export_tokens(model: TokenRanker, path: Path) -> None:
    """Write the fp32 graph of the model's outputs for sequences to `path`.

    The aggregator that combines passages is a separate graph (export.families).

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes.

    Raises:
        ExportError: the encoder is not of BERT's architecture, a fusion is missing, or a dimension of the graph is frozen.
    """
    if (kind := model.encoder.config.model_type) != "bert":
        raise ExportError(f"a {model.family['name']} on a {kind} cannot be exported, which joins BERT's layers; train it on a bert")
    example = trace_example(model.vocabulary_size)

    def last_states(input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The last layer's states, (batch, length, hidden), with an explicit attention mask."""
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": padding(attention_mask)}
        states: Tensor = model.encoder(**given).last_hidden_state
        return states

    def features(*given: Tensor) -> Tensor:
        """See RankerModule.outputs; reads the INPUTS, then each layer's states (batch, length, hidden), the embeddings first."""
        inputs, layers = given[: len(INPUTS)], given[len(INPUTS) :]
        outputs = model.with_logits(model.of_layers(layers, *inputs))
        return outputs.reshape(given[0].shape[0], 1 + model.hidden_size)  # sets the graph's width

    trace(Traced(model.encoder, last_states), example, path, "states")
    graph = optimized_graph(onnx.load(str(path)), model.encoder.config)
    check_fused(graph, model.encoder.config.num_hidden_layers)
    shape = (*example["input_ids"].shape, model.encoder.config.hidden_size)
    trace(Traced(model, features), example | {STATES.format(i): torch.randn(shape) for i in range(model.channels)}, path, OUTPUTS)
    _join(graph, onnx.load(str(path)))
    check_sequences(graph, model)
    onnx.save(graph, str(path))


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
