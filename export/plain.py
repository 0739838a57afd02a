"""A model as PyTorch traces it, without fusion: for families without a pattern that ONNX Runtime's optimizer knows."""

import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from export.classifier import optimized_graph
from export.graph import check_inputs, output_name, trace, trace_example
from export.masks import spelled_masks
from export.storage import save_graph
from export.variants import fused_nodes
from training.models.late_transformer import LateTransformer
from training.models.ranker_module import RankerModule
from training.models.transformer_ranker import masked_by


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
