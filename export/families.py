"""How each ranker family becomes a graph. A family with a new kind of graph adds a module to this package and a line here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from export import ExportError
from export.bi_encoder import export_bi_encoder
from export.classifier import export_classifier
from export.given import GivenGraph, export_given
from export.graph import export_graph
from export.plain import export_late, export_plain
from export.tokens import export_tokens
from training.models.ranker_module import RankerModule

EXPORTS: dict[str, Callable[[Any, Path], dict[str, int]]] = {
    "cross_encoder": export_graph,
    "classifier": export_classifier,
    "bi_encoder": export_bi_encoder,
    "judge": export_classifier,
    "given": export_given,
    **dict.fromkeys(("ck", "tkl", "deeprank"), export_plain),
    "late_transformer": export_late,
    **dict.fromkeys(("cedr_knrm", "cedr_drmm", "cedr_pacrr", "neural_model1"), export_tokens),
}
"""Exporters by the family's name: each writes the fp32 graph of a model's `outputs`, and returns its fused nodes by operator."""


def export_ranker(model: RankerModule | GivenGraph, path: Path) -> dict[str, int]:
    """Write the graph of the model's outputs for sequences. Raises ExportError for a family without one, and as its export does."""
    family = model.family["name"]
    if family not in EXPORTS:
        raise ExportError(f"models of the family {family} cannot be exported; those of {', '.join(EXPORTS)} can")
    return EXPORTS[family](model, path)
