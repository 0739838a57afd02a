"""The ONNX files of a bundle in one directory, and the other kinds that are made of them."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnx
from onnx import ModelProto

from export import ExportError
from export.aggregation import export_aggregator
from export.families import export_ranker
from export.given import GivenGraph
from export.last_attention import ask_for_cls_alone_where_narrowed
from export.options import VariantKind, WeightPrecision
from export.precision import halve_weights
from export.static_quantization import Batch
from export.storage import data_file, save_graph, share_weights
from export.trained import Trained
from export.variants import convert, fused_nodes
from keyblock.bundle import AGGREGATOR_FILE, GRAPH_FILE, SELECTOR_FILE, GraphFiles, SharedFile
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider, resolve
from keyblock.text.tokenizer import Tokenizer
from training.models.ranker_module import RankerModule

Change = Callable[[ModelProto], object]
"""Something done to a graph, in place."""


@dataclass(frozen=True)
class Graphs:
    """The ONNX files, named as in a bundle.

    Attributes:
        folder: where they are.
        fused: of each encoder, by file: fused nodes by operator.
        shares: of each encoder that leaves weights in the file of another, by file: that one.
    """

    folder: Path
    fused: dict[str, dict[str, int]] = field(default_factory=dict)
    shares: dict[str, SharedFile] = field(default_factory=dict)

    def open(self, tokenizer: Tokenizer, provider: Provider, precision: str = Precision.AUTO) -> GraphModel:
        """Load them. Raises ProviderError and SessionError."""
        choice = resolve(provider, precision=precision, variants=[precision])
        aggregator, selector = (self.folder / name for name in (AGGREGATOR_FILE, SELECTOR_FILE))
        return GraphModel.open_files(
            tokenizer,
            GraphFiles(self.folder / GRAPH_FILE),
            aggregator if aggregator.exists() else None,
            GraphFiles(selector) if selector.exists() else None,
            asked=choice,
        )

    def served(self, folder: Path, precision: WeightPrecision) -> "Graphs":
        """As a bundle serves them: the encoders' last attention for [CLS] alone, weights in half of the bytes where asked for.

        Raises ExportError when a weight does not fit.
        """
        stored = [halve_weights] if precision is WeightPrecision.FP16 else []
        encoder = _in_turn(ask_for_cls_alone_where_narrowed, *stored)
        names = [path.name for path in self.folder.glob("*.onnx")]
        changes = {name: encoder if name in self.fused else _in_turn(*stored) for name in names}
        return self._copied(folder, changes).counted()

    def variant(self, kind: VariantKind, folder: Path, batches: Sequence[Batch] = ()) -> "Graphs":
        """The encoders of these fp32 graphs, made for another arithmetic. Raises ExportError, also for one beyond 2 GiB.

        Args:
            kind: says which arithmetic.
            folder: a new one.
            batches: what the encoders are to read, for a kind whose scales are fixed beforehand.
        """
        made = self._copied(folder, dict.fromkeys(self.fused, partial(convert, kind, batches))).counted()
        if any(
            (folder / data_file(name)).exists() for name in self.fused
        ):  # a graph names its data's file, and a bundle renames both
            raise ExportError(f"the {kind} graph has more than 2 GiB, which no variant may have; leave --variant {kind} out")
        return made

    def keeping(self, source: Path) -> "Graphs":
        """The same, but with the file of the source wherever that computes the same under other names.

        A bundle that gets a variant stays what it was, byte for byte. One whose weights are in a second file is written anew.
        """
        for name in self.fused:
            given, made = source / name, self.folder / name
            whole = given.is_file() and not (self.folder / data_file(name)).exists()
            if whole and _unnamed(given) == _unnamed(made):
                shutil.copyfile(given, made)
        return self

    def sharing(self, served: "Graphs", folder: Path) -> "Graphs":
        """A variant as a bundle holds it: each encoder reads in the one that is served what both have; none opens alone."""
        changes: dict[str, Change] = {name: partial(share_weights, other=served.folder / name) for name in self.fused}
        hashes = {name: hashlib.sha256((served.folder / name).read_bytes()).hexdigest() for name in self.fused}
        shares = {name: SharedFile(file=name, sha256=sha256) for name, sha256 in hashes.items()}
        return replace(self._copied(folder, changes), shares=shares)

    def counted(self) -> "Graphs":
        """The same, their fused nodes counted anew."""
        plain = {name: onnx.load(str(self.folder / name), load_external_data=False) for name in self.fused}
        return replace(self, fused={name: fused_nodes(graph) for name, graph in plain.items()})

    def _copied(self, folder: Path, changes: dict[str, Change]) -> "Graphs":
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(*changes, *map(data_file, changes)))
        for name, change in changes.items():
            graph = onnx.load(str(self.folder / name))
            change(graph)
            save_graph(graph, folder / name)
        return replace(self, folder=folder)


def _unnamed(path: Path) -> list[object]:
    """All that a graph computes, its values called by the order in which they are met."""
    graph = onnx.load(str(path)).graph
    numbers: dict[str, int] = {}
    found: list[object] = []
    for node in graph.node:
        values = [[numbers.setdefault(name, len(numbers)) for name in names] for names in (node.input, node.output)]
        found.append((node.domain, node.op_type, values, [attribute.SerializeToString() for attribute in node.attribute]))
    for tensor in graph.initializer:
        number = numbers.get(tensor.name)
        tensor.name = ""
        found.append((number, tensor.SerializeToString()))
    return found


def _in_turn(*changes: Change) -> Change:
    def all_of_them(model: ModelProto) -> None:
        for change in changes:
            change(model)

    return all_of_them


def export_graphs(trained: Trained, folder: Path) -> Graphs:
    """Write the fp32 graphs of a run into a new folder. Raises ExportError when one does not come out as it must."""
    folder.mkdir()
    fused = {GRAPH_FILE: export_ranker(trained.model, folder / GRAPH_FILE)}
    if trained.chooser is not None:
        fused[SELECTOR_FILE] = export_ranker(trained.chooser, folder / SELECTOR_FILE)
    if trained.model.combines:
        export_aggregator(trained.model, folder / AGGREGATOR_FILE)
    return Graphs(folder, fused)


def export_graph_of(model: RankerModule | GivenGraph, folder: Path) -> Graphs:
    """Write the fp32 graph of one model into a new folder. Raises ExportError as its export does."""
    folder.mkdir()
    return Graphs(folder, {GRAPH_FILE: export_ranker(model, folder / GRAPH_FILE)})
