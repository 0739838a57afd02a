"""Writes what the machine with the GPU needs and cannot make: the bundle's fp16 variant, and real sequences; about 45 MiB."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from keyblock.bundle import GRAPH_FILE, Variant, load_bundle, write_bundle
from keyblock.packing import Packed

DEPTH = 50  # candidates of a query
SEQUENCES, VARIANT = "sequences.npz", "variant.json"


def prepare(directory: Path, bundle: Path, data: Path | None, sequences: int) -> None:
    """Write the files into a directory.

    Args:
        directory: new, or written by this function earlier.
        bundle: bundle that is served, and whose ranking is compared.
        data: collection of the dev queries; None: export's small sample.
        sequences: the largest number of sequences.

    Raises ExportError if the variant cannot be made.
    """
    from export.exporter import SAMPLE, graph_entry  # PyTorch and transformers
    from export.families import export_ranker
    from export.graphs import Graphs
    from export.options import VariantKind
    from export.trained import load_trained
    from export.variants import fused_nodes, unpad, variant_name
    from training.data.collection import Collection
    from training.data.examples import Preparation

    directory.mkdir(parents=True, exist_ok=True)
    trained, kind = load_trained(bundle), VariantKind.FP16
    path = directory / variant_name(GRAPH_FILE, kind)
    export_ranker(trained.model, path)
    graph = onnx.load(str(path))
    unpad(graph)
    onnx.save(graph, str(path))
    entry = graph_entry(trained.model, kind.value, GRAPH_FILE, Graphs(directory, {GRAPH_FILE: fused_nodes(graph)}))
    variant = Variant(graph=entry.model_copy(update={"file": path.name}), quality={"unmeasured": "made by benchmarks.gpu"})
    (directory / VARIANT).write_text(variant.model_dump_json(), encoding="utf-8")
    preparation = Preparation(Collection(data or SAMPLE), load_bundle(bundle).pipeline)
    packed: list[Packed] = []
    queries: list[int] = []
    candidates = preparation.collection.run("dev")
    for number, query_id in enumerate(sorted(candidates)):
        for doc_id in islice(candidates[query_id], DEPTH):
            selection = preparation.pipeline.select(preparation.query(query_id), preparation.document(doc_id))
            packed += selection.sequences
            queries += [number] * len(selection.sequences)
        if len(packed) >= sequences:
            break
    save(directory / SEQUENCES, packed[:sequences], queries[:sequences])


def save(path: Path, packed: Sequence[Packed], queries: Sequence[int]) -> None:
    """Write sequences and the query of each, for `load`."""
    np.savez_compressed(
        path,
        ids=np.concatenate([one.ids for one in packed]),
        lengths=np.asarray([len(one.ids) for one in packed]),
        splits=np.asarray([one.split for one in packed]),
        queries=np.asarray(queries),
    )


def load(path: Path, count: int) -> tuple[list[Packed], NDArray[np.int64]]:
    """The first `count` sequences that `save` wrote, and the query of each."""
    with np.load(path) as stored:
        ids: list[NDArray[np.int32]] = np.split(stored["ids"], np.cumsum(stored["lengths"])[:-1])
        nothing = np.zeros(0, np.intp)
        packed = [Packed(one, int(split), nothing) for one, split in zip(ids, stored["splits"], strict=True)]
        return packed[:count], stored["queries"][:count]


def served_bundle(bundle: Path, prepared: Path, directory: Path) -> Path:
    """Write a copy of the bundle with its prepared fp16 variant alone."""
    opened = load_bundle(bundle)
    variant = Variant.model_validate_json((prepared / VARIANT).read_text(encoding="utf-8"))
    others = {one.graph.file for one in opened.manifest.variants.values()}
    files = {name: opened.path / name for name in opened.manifest.files if name not in others}
    files[variant.graph.file] = prepared / variant.graph.file
    manifest = opened.manifest.model_copy(update={"variants": {variant.graph.precision: variant}})
    return write_bundle(directory, manifest, files, overwrite=True).path
