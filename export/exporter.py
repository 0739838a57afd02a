"""Exports a training run as a bundle, step by step."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from export.certificate import SAMPLE, versions
from export.graph import OPSET
from export.graphs import Graphs, entries_of, export_graphs, fails_on, files_of, variant_of
from export.options import Options, VariantKind, WeightPrecision
from export.trained import Trained, load_trained
from export.variants import batches_of
from export.verification import Dev, check_parity, check_ranking, compare
from keyblock.bundle import AggregatorEntry, Bundle, Manifest, check_target, write_bundle
from keyblock.packing import Packed
from keyblock.runtime.model import GraphModel, open_first
from keyblock.runtime.providers import Graph, Provider, ProviderError
from training.data.collection import Collection

FIXING = 256  # sequences whose activations set the scales of int8-static


def export_run(source: Path, out: Path, options: Options) -> Bundle:
    """Write and verify a bundle.

    Args:
        source: a training run, or a bundle to write with variants or another precision.
        out: where the bundle goes.
        options: how to export.

    Raises:
        ExportError: the run is incomplete, does not fuse, or fails a check.
        CheckpointError: the run has no model.
        BundleError: the bundle cannot be written, or the given bundle is damaged.
        ProviderError: the provider to serve on is not available.
    """
    check_target(out, options.overwrite)
    trained = load_trained(source)
    if options.average is not None:
        trained = trained.averaged(options.average)
    with tempfile.TemporaryDirectory(prefix="keyblock-export-") as folder:
        plain = export_graphs(Path(folder) / "fp32", trained.model, trained.chooser)
        exact = plain.served(Path(folder) / "exact", WeightPrecision.FP32)
        served = plain.served(Path(folder) / "served", options.precision).reusing_files(source)
        checks = Checks(trained, exact, options)
        batches = batches_of(checks.read(), trained.pipeline.tokenizer) if VariantKind.INT8_STATIC in options.variants else []
        variants = {kind: plain.variant(kind, Path(folder) / kind, batches) for kind in options.variants}
        stored = {kind: _stored(kind, graphs, served) for kind, graphs in variants.items()}
        quality = checks.served(served)
        manifest = Manifest(
            name=options.name or trained.name,
            pipeline=trained.pipeline.config,
            **_entries(trained, options.precision.value, served),
            variants={
                kind.value: variant_of(kind, checks.variant(kind, graphs), stored[kind], trained.model, trained.chooser)
                for kind, graphs in variants.items()
            },
            provenance=trained.provenance | {"export": versions()},
            quality=trained.quality | {"export": quality},
            fails_on=fails_on(checks.failed),
        )
        files = {name: source / name for name in (*manifest.built_from, *manifest.meaning_files)}
        return write_bundle(out, manifest, files | files_of(served, stored), overwrite=options.overwrite)


class Checks:
    """The checks that the graphs must pass, on the dev candidates of the collections, or on the sample.

    Args:
        trained: the model in PyTorch.
        exact: the served graphs, in fp32; they are compared with PyTorch, and all other graphs with them.
        options: what to measure.

    Attributes:
        failed: graphs that could not be loaded, see `open_first`.
    """

    def __init__(self, trained: Trained, exact: Graphs, options: Options) -> None:
        collections = options.collections or [Collection(SAMPLE)]
        self._devs = [Dev.build(collection, trained.pipeline, options.queries, options.depth) for collection in collections]
        self._reference = exact.open(trained.pipeline.tokenizer, Provider.CPU)
        self._trained, self._options = trained, options
        self.failed: dict[Graph, str] = {}

    def read(self) -> list[Packed]:
        """Sequences that set the scales, the same number from each collection; relevance judgements play no part."""
        each = FIXING // len(self._devs) or 1
        budget = self._trained.pipeline.config.packing.budget
        found = [dev.selections(self._reference, budget, each) for dev in self._devs]
        return [one for selections, choosing in found for one in (*choosing, *(p for s in selections for p in s.sequences))]

    def served(self, graphs: Graphs) -> dict[str, Any]:
        """The measurements of the graphs that the bundle serves, for the manifest. Raises ExportError if a check fails."""
        model = open_first(partial(graphs.open, self._trained.pipeline.tokenizer), self._options.provider, failed=self.failed)
        parity = check_parity(self._trained.reference, self._reference, self._devs[0])
        return self._compared(model) | {"parity": parity}

    def variant(self, kind: VariantKind, graphs: Graphs) -> dict[str, Any]:
        """The measurements of a variant on its provider, or why that is not available. Raises ExportError."""
        try:
            model = graphs.open(self._trained.pipeline.tokenizer, kind.provider, kind.value)
        except ProviderError as error:
            return {"unmeasured": str(error)}
        return self._compared(model)

    def _compared(self, model: GraphModel) -> dict[str, Any]:
        compared = {dev.preparation.collection.name: compare(self._reference, model, dev) for dev in self._devs}
        choice = model.session.choice
        quality: dict[str, Any] = {
            "provider": choice.provider,
            "precision": choice.precision,
            "budget": self._trained.pipeline.config.packing.budget,
            "depth": self._options.depth,
            "collections": compared,
        }
        if self._options.collections:
            quality["nDCG@10 lost"] = check_ranking(compared, f"{choice.provider} in {choice.precision}")
        return quality


def _stored(kind: VariantKind, graphs: Graphs, served: Graphs) -> Graphs:
    """A variant as the bundle holds it: weights that are served as they are, are not stored twice.

    int8-static keeps the embeddings, fp16 every matrix. int8 would share a few vectors: its graphs stay whole.
    """
    if kind is VariantKind.INT8:
        return graphs
    return graphs.sharing(served, graphs.folder.with_name(f"{kind}-shared"))


def _entries(trained: Trained, precision: str, graphs: Graphs) -> dict[str, Any]:
    """The manifest's entries of the graphs."""
    entries: dict[str, Any] = {**entries_of(precision, graphs, trained.model, trained.chooser)}
    model = trained.model
    if model.combines:
        kind = dict(model.family) if model.aggregator is None else model.aggregator.description
        entries["aggregator"] = AggregatorEntry(precision=precision, opset=OPSET, hidden=model.hidden_size, kind=kind)
    return entries
