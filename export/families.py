"""How each ranker family becomes a graph. Other packages name their families' exports as entry points of GROUP."""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from export import ExportError
from export.bi_encoder import export_bi_encoder
from export.classifier import export_classifier, export_cross_encoder
from export.onnx_source import GivenGraph, export_given
from training.model.ranker_module import RankerModule

GROUP = "keyblock.export.families"
Export = Callable[[Any, Path], dict[str, int]]
EXPORTS: dict[str, Export] = {
    "cross_encoder": export_cross_encoder,
    "classifier": export_classifier,
    "bi_encoder": export_bi_encoder,
    "judge": export_classifier,
    "given": export_given,
}
"""Exporters by the family's name: each writes the fp32 graph of a model's `outputs`, and returns its fused nodes by operator."""


def export_ranker(model: RankerModule | GivenGraph, path: Path) -> dict[str, int]:
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
    return export(model, path)
