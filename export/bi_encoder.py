"""The bi-encoder as one ONNX graph: it splits a packed sequence into query and sentence, and outputs their scaled cosine."""

import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from export import ExportError
from export.classifier import optimized_graph
from export.graph import LOGITS, check_shapes, trace
from export.masks import spelled_masks
from export.storage import save_graph
from export.variants import fused_nodes
from training.model.bi_encoder import BiEncoder
from training.model.transformer_ranker import masked_by


class Traced(nn.Module):
    """The computation of the graph."""

    def __init__(self, model: BiEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits of shape (batch,) from the three INPUTS."""
        return self.model.outputs(*inputs)


def export_bi_encoder(model: BiEncoder, path: Path) -> dict[str, int]:
    """Write the fp32 graph of the model's outputs for sequences to `path`.

    Args:
        model: loaded with ``attention="eager"``; left in eval mode.
        path: where the ONNX file goes.

    Returns:
        Fused nodes by operator.

    Raises ExportError for an encoder with one type of segment: the graph could not know where the sentence begins.
    """
    config = model.encoder.config
    if not model.typed:
        raise ExportError(
            f"a bi_encoder on {config.model_type} has one type of segment, and its graph could not tell the query from the "
            "sentence: train it on an encoder with two, like BERT's"
        )
    free = {name: {0: "batch", 1: "length"} for name in model.INPUTS}
    with masked_by(model, spelled_masks(config)), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about shapes that the exporter leaves open: checked below
        trace(Traced(model).eval(), _example(model.vocabulary_size), path, LOGITS, free)
    graph = optimized_graph(onnx.load(str(path)), config)
    check_shapes(graph, {name: ["batch", "length"] for name in model.INPUTS}, {LOGITS: ["batch"]})
    save_graph(graph, path)
    return fused_nodes(graph)


def _example(vocabulary_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three sequences of different lengths, two with the same query: token ids, types and mask, shape (3, 16)."""
    ids = torch.arange(2, 2 + 3 * 16).reshape(3, 16) % vocabulary_size
    ids[1, :6] = ids[0, :6]
    place, splits, ends = torch.arange(16), torch.tensor([[6], [6], [9]]), torch.tensor([[16], [12], [14]])
    mask = (place < ends).long()
    return ids * mask, (place >= splits).long() * mask, mask
