"""The ONNX files of a bundle in one directory, and the other kinds that are made of them."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from onnx import ModelProto

from export.aggregation import export_aggregator
from export.graph import export_graph
from export.precision import halve_weights
from export.trained import Trained
from export.variants import VariantKind
from keyblock.bundle import AGGREGATOR_FILE, GRAPH_FILE, SELECTOR_FILE
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider, resolve
from keyblock.tokenization import Tokenizer


@dataclass(frozen=True)
class Graphs:
    """The ONNX files, named as in a bundle.

    Attributes:
        folder: where they are.
        fused: of each encoder, by file: fused nodes by operator.
    """

    folder: Path
    fused: dict[str, dict[str, int]] = field(default_factory=dict)

    def open(self, tokenizer: Tokenizer, provider: Provider, precision: str = Precision.AUTO) -> GraphModel:
        """Load them. Raises ProviderError and SessionError."""
        choice = resolve(provider, precision=precision, variants=[precision])
        aggregator, selector = (self.folder / name for name in (AGGREGATOR_FILE, SELECTOR_FILE))
        return GraphModel.open_files(
            tokenizer,
            self.folder / GRAPH_FILE,
            aggregator if aggregator.exists() else None,
            selector if selector.exists() else None,
            asked=choice,
        )

    def halved(self, folder: Path) -> "Graphs":
        """The same with weights in half of the bytes. Raises ExportError when one does not fit."""
        return self._copied(folder, {path.name: halve_weights for path in self.folder.iterdir()})

    def variant(self, kind: VariantKind, folder: Path) -> "Graphs":
        """The encoders of these fp32 graphs, made for another arithmetic. Raises ExportError."""
        made = self._copied(folder, dict.fromkeys(self.fused, kind.convert))
        return replace(made, fused={name: kind.fused_nodes(onnx.load(str(folder / name))) for name in self.fused})

    def _copied(self, folder: Path, changes: dict[str, Callable[[ModelProto], object]]) -> "Graphs":
        shutil.copytree(self.folder, folder)
        for name, change in changes.items():
            graph = onnx.load(str(folder / name))
            change(graph)
            onnx.save(graph, str(folder / name))
        return replace(self, folder=folder)


def export_graphs(trained: Trained, folder: Path) -> Graphs:
    """Write the fp32 graphs of a run into a new folder. Raises ExportError when one does not come out as it must."""
    folder.mkdir()
    fused = {GRAPH_FILE: export_graph(trained.model, folder / GRAPH_FILE)}
    if trained.chooser is not None:
        fused[SELECTOR_FILE] = export_graph(trained.chooser, folder / SELECTOR_FILE)
    if trained.model.aggregator is not None:
        export_aggregator(trained.model, folder / AGGREGATOR_FILE)
    return Graphs(folder, fused)
