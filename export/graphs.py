"""The ONNX files of a bundle in one directory, and the served graphs and variants made from them."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from export import ExportError
from export.families import export_aggregator, export_ranker
from export.graph import LOGITS, OPSET, Change, fused_nodes, output_name
from export.last_attention import compute_cls_alone_if_narrowed
from export.onnx_source import GivenGraph
from export.options import VariantKind, WeightPrecision
from export.storage import data_file, save_graph, share_weights
from export.variants import Batch, convert, halve_weights, variant_name
from keyblock.bundle import AGGREGATOR_FILE, GRAPH_FILE, SELECTOR_FILE, GraphEntry, GraphFiles, SharedFile, Variant
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import GPU, Choice, Graph, Precision, Provider, resolve
from keyblock.text.tokenizer import Tokenizer
from training.model.ranker_module import RankerModule


@dataclass(frozen=True)
class Graphs:
    """The ONNX files, named as in a bundle.

    Attributes:
        folder: their folder.
        shares: for each encoder's file that keeps weights in another file, that other file.
    """

    folder: Path
    shares: dict[str, SharedFile] = field(default_factory=dict)

    @property
    def encoders(self) -> list[str]:
        """The files of the ranker, and of a model that selects."""
        return [name for name in (GRAPH_FILE, SELECTOR_FILE) if (self.folder / name).exists()]

    def fused(self, encoder: str) -> dict[str, int]:
        """The fused nodes of an encoder's file, by operator."""
        return fused_nodes(onnx.load(str(self.folder / encoder), load_external_data=False))

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
        stored: tuple[Change, ...] = (halve_weights,) if precision is WeightPrecision.FP16 else ()
        changes = {path.name: stored for path in self.folder.glob("*.onnx")}
        return self._copied(folder, changes | dict.fromkeys(self.encoders, (compute_cls_alone_if_narrowed, *stored)))

    def variant(self, kind: VariantKind, folder: Path, batches: Sequence[Batch] = ()) -> "Graphs":
        """The encoders of these fp32 graphs for another arithmetic. Raises ExportError, also for a graph beyond 2 GiB.

        Args:
            kind: the arithmetic.
            folder: a new folder.
            batches: sample inputs of the encoders, for a kind with static scales.
        """
        made = self._copied(folder, dict.fromkeys(self.encoders, (partial(convert, kind, batches),)))
        # a graph names its data's file, and a bundle renames both
        if any((folder / data_file(name)).exists() for name in self.encoders):
            raise ExportError(f"the {kind} graph has more than 2 GiB, which no variant may have; leave --variant {kind} out")
        return made

    def reusing_files(self, source: Path) -> "Graphs":
        """The same, but with the source's file for each graph that differs only in its names.

        So a bundle that gets a variant keeps its bytes. A graph with weights in a second file is written again.
        """
        for name in self.encoders:
            given, made = source / name, self.folder / name
            whole = given.is_file() and not (self.folder / data_file(name)).exists()
            if whole and _without_names(given) == _without_names(made):
                shutil.copyfile(given, made)
        return self

    def sharing(self, served: "Graphs", folder: Path) -> "Graphs":
        """A variant as a bundle holds it: each encoder reads common weights from the served file, and cannot open without it."""
        changes = {name: [partial(share_weights, other=served.folder / name)] for name in self.encoders}
        hashes = {name: hashlib.sha256((served.folder / name).read_bytes()).hexdigest() for name in self.encoders}
        shares = {name: SharedFile(file=name, sha256=sha256) for name, sha256 in hashes.items()}
        return replace(self._copied(folder, changes), shares=shares)

    def _copied(self, folder: Path, changes: Mapping[str, Sequence[Change]]) -> "Graphs":
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(*changes, *map(data_file, changes)))
        for name, of_graph in changes.items():
            graph = onnx.load(str(self.folder / name))
            for change in of_graph:
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


def export_graphs(folder: Path, model: RankerModule | GivenGraph, chooser: RankerModule | None = None) -> Graphs:
    """Write the fp32 graphs of a ranker, and of a model that selects, into a new folder. Raises ExportError as their exports do."""
    folder.mkdir()
    export_ranker(model, folder / GRAPH_FILE)
    if chooser is not None:
        export_ranker(chooser, folder / SELECTOR_FILE)
    if isinstance(model, RankerModule) and model.combines:
        export_aggregator(model, folder / AGGREGATOR_FILE)
    return Graphs(folder)


def files_of(served: Graphs, variants: Mapping[VariantKind, Graphs]) -> dict[str, Path]:
    """The source of each ONNX file of a bundle."""
    files = {path.name: path for path in served.folder.iterdir()}
    return files | {variant_name(name, kind): of.folder / name for kind, of in variants.items() for name in of.encoders}


def entries_of(
    precision: str, graphs: Graphs, model: RankerModule | GivenGraph, chooser: RankerModule | None = None
) -> dict[str, GraphEntry]:
    """The manifest's entries of the encoders' graphs."""
    models = {"graph": (GRAPH_FILE, model)} | ({} if chooser is None else {"selector_graph": (SELECTOR_FILE, chooser)})
    return {entry: _entry(one, precision, file, graphs) for entry, (file, one) in models.items()}


def variant_of(
    kind: VariantKind,
    quality: dict[str, Any],
    graphs: Graphs,
    model: RankerModule | GivenGraph,
    chooser: RankerModule | None = None,
) -> Variant:
    """The manifest's entry of a variant."""
    entries = entries_of(kind.value, graphs, model, chooser)
    named = {name: entry.model_copy(update={"file": variant_name(entry.file, kind)}) for name, entry in entries.items()}
    return Variant(**named, quality=quality)


def _entry(model: RankerModule | GivenGraph, precision: str, file: str, graphs: Graphs) -> GraphEntry:
    return GraphEntry(
        file=file,
        precision=precision,
        opset=OPSET,
        inputs=dict.fromkeys(model.graph_inputs, "int64"),
        output=LOGITS if isinstance(model, GivenGraph) else output_name(model),
        marks=getattr(model, "marker", None) is not None,
        max_length=model.max_length,
        vocabulary_size=model.vocabulary_size,
        fused=graphs.fused(file),
        shares=graphs.shares.get(file),
    )
