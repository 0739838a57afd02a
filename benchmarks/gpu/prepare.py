"""Writes the files for the machine with the GPU: graphs without their weights, and real sequences; a few MiB.

This needs the packages of an export: PyTorch, transformers, onnx, and the embedded model's backbone. The other machine does not.
"""

import gc
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnx import ModelProto
from transformers import AutoModel, AutoModelForSequenceClassification

from benchmarks.gpu.hollow import hollow, in_bf16
from benchmarks.gpu.sequences import Sequences
from benchmarks.gpu.shapes import SHAPES, Shape
from export import ExportError
from export.exporter import SAMPLE, graph_entry
from export.families import export_ranker
from export.graph import Traced, output_name, trace_sequences
from export.graphs import Graphs
from export.masks import spelled_masks
from export.options import VariantKind
from export.trained import Trained, load_trained
from export.variants import fused_nodes, in_fp16, unpad, variant_name
from keyblock.bundle import GRAPH_FILE, Variant, load_bundle
from training.data.collection import Collection
from training.data.examples import Preparation
from training.model.classifier import Classifier
from training.model.cross_encoder import CrossEncoder
from training.model.transformer_ranker import masked_by

VOCABULARY = (
    1009  # rows of an exported random graph's vocabulary, instead of up to 250,002; no other weight has this number of rows
)
DEPTH = 50  # candidates of a query
LARGEST = 50 << 20  # bytes of all written files
EMBEDDED, VARIANT_FILE, SEQUENCES_FILE = "embedded", "variant.json", "sequences.npz"
KINDS: dict[str, Callable[[ModelProto], object]] = {
    "fp32": lambda _: None,
    "unpadded": unpad,
    "fp16": in_fp16,
    "bf16": lambda model: (in_fp16(model), in_bf16(model)),
}
"""Kinds of a fused graph. `unpadded` is the fp16 variant that a bundle has for CUDA."""


def prepare(directory: Path, bundle: Path, data: Path | None, sequences: int, shapes: Sequence[Shape] = SHAPES) -> None:
    """Write the files for the machine with the GPU.

    Args:
        directory: new, or written by this function earlier.
        bundle: bundle that is served, and whose ranking is compared.
        data: collection of the dev queries; None: export's small sample.
        sequences: the largest number of sequences.
        shapes: shapes to time, besides the bundle's own.

    Raises ExportError if a graph is not as expected, or the files are too large.
    """
    directory.mkdir(parents=True, exist_ok=True)
    trained, opened = load_trained(bundle), load_bundle(bundle)
    source = onnx.load(str(bundle / GRAPH_FILE))
    assert isinstance(trained.model, CrossEncoder)  # noqa: S101  # see load_trained
    _write_kinds(directory, EMBEDDED, trained.model, lambda model: hollow(model, source))
    (directory / VARIANT_FILE).write_text(_variant(directory, trained).model_dump_json(), encoding="utf-8")
    preparation = Preparation(Collection(data or SAMPLE), opened.pipeline)
    packed(preparation, sequences).save(directory / SEQUENCES_FILE)
    for shape in shapes:
        _write_kinds(directory, shape.name, ranker_of(shape), lambda model, s=shape: hollow(model, rows={VOCABULARY: s.vocabulary}))
    if (size := sum(path.stat().st_size for path in directory.iterdir())) > LARGEST:
        raise ExportError(f"{directory} has {size >> 20} MiB, and may have {LARGEST >> 20}; prepare fewer sequences")


def ranker_of(shape: Shape) -> CrossEncoder | Classifier:
    """A model of that shape for an export, with random weights and a small vocabulary."""
    config = shape.config(VOCABULARY)
    if shape.roberta:
        return Classifier(AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")).eval()
    return CrossEncoder(AutoModel.from_config(config, attn_implementation="eager")).eval()


def _write_kinds(directory: Path, name: str, model: CrossEncoder | Classifier, empty: Callable[[ModelProto], None]) -> None:
    """Write the model's graphs, except those that its form does not allow."""
    with TemporaryDirectory(prefix="keyblock-gpu-") as folder:
        fused, plain = Path(folder) / "fused.onnx", Path(folder) / "plain.onnx"
        export_ranker(model, fused)
        for kind, convert in KINDS.items():
            graph = onnx.load(str(fused))
            try:
                convert(graph)
            except ExportError as error:
                print(f"{name} has no graph {kind}: {error}", flush=True)
                continue
            empty(graph)
            onnx.save(graph, str(directory / f"{name}.{kind}.onnx"))
        if isinstance(model, CrossEncoder):
            with masked_by(model, spelled_masks(model.encoder.config)):
                trace_sequences(Traced(model), model.vocabulary_size, plain, output_name(model))
            graph = onnx.load(str(plain))
            empty(graph)
            onnx.save(graph, str(directory / f"{name}.plain.onnx"))
    gc.collect()  # exporter and optimizer leave copies of the weights in cycles


def _variant(directory: Path, trained: Trained) -> Variant:
    """The manifest's entry of the bundle's fp16 variant."""
    graph = onnx.load(str(directory / f"{EMBEDDED}.unpadded.onnx"))
    file = variant_name(GRAPH_FILE, VariantKind.FP16)
    entry = graph_entry(trained.model, VariantKind.FP16.value, GRAPH_FILE, Graphs(directory, {GRAPH_FILE: fused_nodes(graph)}))
    return Variant(graph=entry.model_copy(update={"file": file}), quality={"unmeasured": "made by benchmarks.gpu"})


def packed(preparation: Preparation, sequences: int) -> Sequences:
    """The sequences of the first DEPTH candidates of each dev query, up to a number of sequences."""
    found = Sequences.empty()
    candidates = preparation.collection.run("dev")
    for number, query_id in enumerate(sorted(candidates)):
        documents = [preparation.document(doc_id) for doc_id in islice(candidates[query_id], DEPTH)]
        selections = [preparation.pipeline.select(preparation.query(query_id), document) for document in documents]
        found.add(number, [sequence for selection in selections for sequence in selection.sequences])
        if len(found) >= sequences:
            break
    return found.first(sequences)
