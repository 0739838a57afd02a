"""A model as the graph that PyTorch traces: for families without a pattern that ONNX Runtime's optimizer knows."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from export.graph import check_inputs, output_name, trace, trace_example
from training.models.ranker_module import RankerModule


class Outputs(nn.Module):
    """What a served graph computes of the model."""

    def __init__(self, model: RankerModule) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        """See RankerModule.outputs."""
        return self.model.outputs(*inputs)


def export_plain(model: RankerModule, path: Path) -> dict[str, int]:
    """Write the fp32 graph of what the model says of sequences to `path`; there are no fused nodes to count.

    Args:
        model: of a family that reads ids, types and mask; left in eval mode.
        path: where the ONNX file goes.

    Raises ExportError when a dimension of the graph is frozen.
    """
    ids, mask = trace_example(model.vocabulary_size)
    types = torch.zeros_like(ids)
    types[0, 6:], types[1, 9:12] = 1, 1  # queries of two lengths, or tracing could keep one of them
    free = {name: {0: "batch", 1: "length"} for name in model.INPUTS}
    trace(Outputs(model).eval(), (ids, types, mask), path, output_name(model), free)
    check_inputs(onnx.load(str(path)), None if model.aggregator is None else 1 + model.hidden_size)
    return {}
