"""A training run to a bundle, step by step."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from export import ExportError
from export.graph import OPSET, OUTPUT, export_graph
from export.precision import WeightPrecision, halve_weights
from export.verification import Dev, check_parity, check_ranking, compare
from keyblock import __version__
from keyblock.bundle import FREQUENCIES_FILE, GRAPH_FILE, TOKENIZER_FILE, Bundle, GraphEntry, Manifest, write_bundle
from keyblock.pipeline import Pipeline
from keyblock.runtime.batching import bucket
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import INPUTS, Session
from training.collection import Collection
from training.model import CrossEncoder
from training.ranking import load_run_pipeline

SAMPLE = Path(__file__).parent / "sample"
VERSIONS = ("torch", "transformers", "onnx")


@dataclass(frozen=True)
class Options:
    """How to export.

    Attributes:
        precision: of the stored weights.
        provider: what the bundle will be served on; the ranking is checked there.
        collections: dev measurements are taken on these; none: the small sample in this package, without a ranking check.
        queries: of each collection's dev split.
        depth: candidates a query.
        name: the model's; the run directory's when empty.
        overwrite: replace a bundle that stands at the target.
    """

    precision: WeightPrecision = WeightPrecision.FP16
    provider: Provider = Provider.AUTO
    collections: Sequence[Collection] = ()
    queries: int = 200
    depth: int = 100
    name: str = ""
    overwrite: bool = False


def export_run(run: Path, out: Path, options: Options) -> Bundle:
    """Write and verify a bundle.

    Raises:
        ExportError: the run is incomplete, does not fuse, or fails a check.
        BundleError: the bundle cannot be written.
        ProviderError: the provider to serve on is not there.
    """
    pipeline, model = _load(run)
    with tempfile.TemporaryDirectory(prefix="keyblock-export-") as folder:
        plain, served = Path(folder) / "fp32.onnx", Path(folder) / GRAPH_FILE
        fused = export_graph(model, plain)
        shutil.copyfile(plain, served)
        if options.precision is WeightPrecision.FP16:
            _halve(served)
        quality = verify(model, pipeline, plain, served, options)
        manifest = Manifest(
            name=options.name or run.resolve().name,
            pipeline=pipeline.config,
            graph=_entry(model, options.precision, fused),
            provenance=_read_json(run / "provenance.json") | {"export": _software()},
            quality=_read_json(run / "quality.json") | {"export": quality},
        )
        files = {GRAPH_FILE: served, TOKENIZER_FILE: run / TOKENIZER_FILE, FREQUENCIES_FILE: run / FREQUENCIES_FILE}
        return write_bundle(out, manifest, files, overwrite=options.overwrite)


def verify(model: CrossEncoder, pipeline: Pipeline, plain: Path, served: Path, options: Options) -> dict[str, Any]:
    """Check both graphs on the dev candidates of the collections, or on the sample; what was measured, for the manifest.

    Raises ExportError when a check fails.
    """
    collections = options.collections or [Collection(SAMPLE)]
    devs = [Dev.build(collection, pipeline, options.queries, options.depth) for collection in collections]
    reference, session = Session(plain, Provider.CPU), Session(served, options.provider)
    parity = check_parity(model, reference, devs[0])
    compared = {dev.preparation.collection.name: compare(reference, session, dev) for dev in devs}
    quality: dict[str, Any] = {
        "provider": session.choice.provider,
        "precision": session.choice.precision,
        "parity": parity,
        "budget": pipeline.config.packing.budget,
        "depth": options.depth,
        "collections": compared,
    }
    if options.collections:
        quality["nDCG@10 lost"] = check_ranking(compared)
    return quality


def _load(run: Path) -> tuple[Pipeline, CrossEncoder]:
    for name in ("pipeline.json", TOKENIZER_FILE, FREQUENCIES_FILE, "checkpoint"):
        if not (run / name).exists():
            raise ExportError(f"{run}: has no {name}; give a run directory of keyblock-train")
    try:
        pipeline = load_run_pipeline(run)
        model = CrossEncoder.load(run / "checkpoint", attention="eager")
    except (ValueError, OSError, RuntimeError) as error:
        raise ExportError(
            f"{run}: cannot be read ({' '.join(str(error).split())[:300]}); train it again, or copy it again"
        ) from None
    longest, positions = pipeline.config.packing.budget_range[1], model.encoder.config.max_position_embeddings
    if bucket(longest) > positions:
        raise ExportError(
            f"{run}: budgets go to {longest} tokens, padded to {bucket(longest)}, but the encoder has {positions} positions; "
            "lower packing.budget_range in pipeline.json"
        )
    return pipeline, model


def _halve(path: Path) -> None:
    graph = onnx.load(str(path))
    halve_weights(graph)
    onnx.save(graph, str(path))


def _entry(model: CrossEncoder, precision: WeightPrecision, fused: dict[str, int]) -> GraphEntry:
    config = model.encoder.config
    return GraphEntry(
        precision=precision.value,
        opset=OPSET,
        inputs=dict.fromkeys(INPUTS, "int64"),
        output=OUTPUT,
        max_length=config.max_position_embeddings,
        vocabulary_size=config.vocab_size,
        fused=fused,
    )


def _software() -> dict[str, str]:
    import onnxruntime  # whichever wheel it came in

    return {"keyblock": __version__, "onnxruntime": onnxruntime.__version__} | {name: version(name) for name in VERSIONS}


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExportError(f"{path}: not JSON ({error}); restore or delete it") from None
    if not isinstance(content, dict):
        raise ExportError(f"{path}: must hold a JSON object; restore or delete it")
    return content
