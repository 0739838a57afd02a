"""The ONNX files of a bundle in one directory, and the served graphs and variants made from them."""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnx import ModelProto

from export import ExportError
from export.families import export_aggregator, export_ranker
from export.graph import fused_nodes
from export.last_attention import compute_cls_alone_if_narrowed
from export.onnx_source import GivenGraph
from export.options import VariantKind, WeightPrecision
from export.storage import data_file, save_graph, share_weights
from export.trained import Trained
from export.variants import Batch, convert, halve_weights
from keyblock.bundle import AGGREGATOR_FILE, GRAPH_FILE, SELECTOR_FILE, GraphFiles, SharedFile
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import GPU, Choice, Graph, Precision, Provider, resolve
from keyblock.text.tokenizer import Tokenizer
from training.model.ranker_module import RankerModule

Change = Callable[[ModelProto], object]
"""A function that changes a graph in place."""


@dataclass(frozen=True)
class Graphs:
    """The ONNX files, named as in a bundle.

    Attributes:
        folder: their folder.
        fused: for each encoder's file, its fused nodes by operator.
        shares: for each encoder's file that keeps weights in another file, that other file.
    """

    folder: Path
    fused: dict[str, dict[str, int]] = field(default_factory=dict)
    shares: dict[str, SharedFile] = field(default_factory=dict)

    def open(self, tokenizer: Tokenizer, requested: Provider | Choice, precision: str = Precision.AUTO) -> GraphModel:
        """Load them. Raises ProviderError and SessionError."""
        choice = requested if isinstance(requested, Choice) else resolve(requested, precision=precision, variants=[precision])
        aggregator, selector = (self.folder / name for name in (AGGREGATOR_FILE, SELECTOR_FILE))
        return GraphModel.open_files(
            tokenizer,
            GraphFiles(self.folder / GRAPH_FILE),
            aggregator if aggregator.exists() else None,
            GraphFiles(selector) if selector.exists() else None,
            requested=choice,
        )

    def served(self, folder: Path, precision: WeightPrecision) -> "Graphs":
        """The graphs as a bundle serves them: the encoders' last attention for [CLS] alone, weights in fp16 if requested.

        Raises ExportError if a weight does not fit into fp16.
        """
        stored = [halve_weights] if precision is WeightPrecision.FP16 else []
        encoder = _all_changes(compute_cls_alone_if_narrowed, *stored)
        names = [path.name for path in self.folder.glob("*.onnx")]
        changes = {name: encoder if name in self.fused else _all_changes(*stored) for name in names}
        return self._copied(folder, changes).counted()

    def variant(self, kind: VariantKind, folder: Path, batches: Sequence[Batch] = ()) -> "Graphs":
        """The encoders of these fp32 graphs for another arithmetic. Raises ExportError, also for a graph beyond 2 GiB.

        Args:
            kind: the arithmetic.
            folder: a new folder.
            batches: sample inputs of the encoders, for a kind with static scales.
        """
        made = self._copied(folder, dict.fromkeys(self.fused, partial(convert, kind, batches))).counted()
        if any(
            (folder / data_file(name)).exists() for name in self.fused
        ):  # a graph names its data's file, and a bundle renames both
            raise ExportError(f"the {kind} graph has more than 2 GiB, which no variant may have; leave --variant {kind} out")
        return made

    def reusing_files(self, source: Path) -> "Graphs":
        """The same, but with the source's file for each graph that differs only in its names.

        So a bundle that gets a variant keeps its bytes. A graph with weights in a second file is written again.
        """
        for name in self.fused:
            given, made = source / name, self.folder / name
            whole = given.is_file() and not (self.folder / data_file(name)).exists()
            if whole and _without_names(given) == _without_names(made):
                shutil.copyfile(given, made)
        return self

    def sharing(self, served: "Graphs", folder: Path) -> "Graphs":
        """A variant as a bundle holds it: each encoder reads common weights from the served file, and cannot open without it."""
        changes: dict[str, Change] = {name: partial(share_weights, other=served.folder / name) for name in self.fused}
        hashes = {name: hashlib.sha256((served.folder / name).read_bytes()).hexdigest() for name in self.fused}
        shares = {name: SharedFile(file=name, sha256=sha256) for name, sha256 in hashes.items()}
        return replace(self._copied(folder, changes), shares=shares)

    def counted(self) -> "Graphs":
        """The same, with their fused nodes counted again."""
        plain = {name: onnx.load(str(self.folder / name), load_external_data=False) for name in self.fused}
        return replace(self, fused={name: fused_nodes(graph) for name, graph in plain.items()})

    def _copied(self, folder: Path, changes: dict[str, Change]) -> "Graphs":
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(*changes, *map(data_file, changes)))
        for name, change in changes.items():
            graph = onnx.load(str(self.folder / name))
            change(graph)
            save_graph(graph, folder / name)
        return replace(self, folder=folder)


def _without_names(path: Path) -> list[object]:
    """A graph's computation, with its values numbered in the order of their first appearance."""
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


def fails_on(failed: Mapping[Graph, str]) -> dict[Any, str]:
    """`keyblock.bundle.Manifest.fails_on`, of graphs that could not be run. Not on a GPU, which may have had too little memory."""
    return {provider.value: onnxruntime.__version__ for provider, variant in failed if not variant and provider not in GPU}


def _all_changes(*changes: Change) -> Change:
    def apply(model: ModelProto) -> None:
        for change in changes:
            change(model)

    return apply


def export_graphs(trained: Trained, folder: Path) -> Graphs:
    """Write the fp32 graphs of a run into a new folder. Raises ExportError if a graph fails its checks."""
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
