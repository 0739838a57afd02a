"""The learned aggregator, from passages' states to a document's logit, as an ONNX graph with free sizes."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from export.graph import LOGITS, check_shapes, trace
from keyblock.runtime.aggregator import INPUTS
from training.models.ranker_module import RankerModule


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
    free = {name: {0: "docs", 1: "passages"} for name in INPUTS}
    trace(TraceableAggregator(model).eval(), (states, mask), path, LOGITS, free)
    check_shapes(onnx.load(str(path)), {"states": ["docs", "passages", hidden], "mask": ["docs", "passages"]}, {LOGITS: ["docs"]})
