"""A training run to a bundle, step by step."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from export import ExportError
from export.aggregation import export_aggregator
from export.graph import OPSET, export_graph, output_name
from export.precision import WeightPrecision, halve_weights
from export.verification import Dev, check_parity, check_ranking, compare
from keyblock import __version__
from keyblock.bundle import (
    AGGREGATOR_FILE,
    FREQUENCIES_FILE,
    GRAPH_FILE,
    SELECTOR_FILE,
    TOKENIZER_FILE,
    AggregatorEntry,
    Bundle,
    GraphEntry,
    Manifest,
    write_bundle,
)
from keyblock.pipeline import Pipeline
from keyblock.runtime.batching import bucket
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import INPUTS
from training.checkpoints import CheckpointError, chosen
from training.collection import Collection
from training.model import CrossEncoder
from training.ranking import CHOOSER, load_run_pipeline
from training.scoring import TorchModel

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


@dataclass(frozen=True)
class Trained:
    """What a run gives.

    Attributes:
        pipeline: the run's.
        model: the ranker, with the aggregator that its pipeline may need.
        chooser: the model that selects blocks, where it is another (BinB2).
    """

    pipeline: Pipeline
    model: CrossEncoder
    chooser: CrossEncoder | None = None

    @property
    def reference(self) -> TorchModel:
        """PyTorch in fp32: what the graphs are held to."""
        return TorchModel(self.model, self.pipeline.tokenizer, bf16=False, chooser=self.chooser)


@dataclass(frozen=True)
class Graphs:
    """The ONNX files of a bundle in one directory; the fused nodes of each encoder by operator."""

    folder: Path
    aggregated: bool
    fused: dict[str, dict[str, int]] = field(default_factory=dict)

    def open(self, trained: Trained, provider: Provider) -> GraphModel:
        """Load them."""
        aggregator = self.folder / AGGREGATOR_FILE if self.aggregated else None
        selector = self.folder / SELECTOR_FILE if SELECTOR_FILE in self.fused else None
        return GraphModel.open_files(trained.pipeline.tokenizer, self.folder / GRAPH_FILE, aggregator, selector, asked=provider)


def export_run(run: Path, out: Path, options: Options) -> Bundle:
    """Write and verify a bundle.

    Raises:
        ExportError: the run is incomplete, does not fuse, or fails a check.
        BundleError: the bundle cannot be written.
        ProviderError: the provider to serve on is not there.
    """
    trained = _load(run)
    with tempfile.TemporaryDirectory(prefix="keyblock-export-") as folder:
        plain = export_graphs(trained, Path(folder) / "fp32")
        served = replace(plain, folder=Path(folder) / "served")
        shutil.copytree(plain.folder, served.folder)
        if options.precision is WeightPrecision.FP16:
            for path in served.folder.iterdir():
                _halve(path)
        quality = verify(trained, plain, served, options)
        manifest = Manifest(
            name=options.name or run.resolve().name,
            pipeline=trained.pipeline.config,
            **_entries(trained, options.precision, plain.fused),
            provenance=_read_json(run / "provenance.json") | {"export": _software()},
            quality=_read_json(run / "quality.json") | {"export": quality},
        )
        files = {path.name: path for path in served.folder.iterdir()}
        files |= {name: run / name for name in (TOKENIZER_FILE, FREQUENCIES_FILE)}
        return write_bundle(out, manifest, files, overwrite=options.overwrite)


def export_graphs(trained: Trained, folder: Path) -> Graphs:
    """Write the fp32 graphs of a run into a new folder. Raises ExportError when one does not come out as it must."""
    folder.mkdir()
    fused = {GRAPH_FILE: export_graph(trained.model, folder / GRAPH_FILE)}
    if trained.chooser is not None:
        fused[SELECTOR_FILE] = export_graph(trained.chooser, folder / SELECTOR_FILE)
    if trained.model.aggregator is not None:
        export_aggregator(trained.model, folder / AGGREGATOR_FILE)
    return Graphs(folder, trained.model.aggregator is not None, fused)


def verify(trained: Trained, plain: Graphs, served: Graphs, options: Options) -> dict[str, Any]:
    """Check both on the dev candidates of the collections, or on the sample; what was measured, for the manifest.

    Raises ExportError when a check fails.
    """
    pipeline = trained.pipeline
    collections = options.collections or [Collection(SAMPLE)]
    devs = [Dev.build(collection, pipeline, options.queries, options.depth) for collection in collections]
    reference, model = plain.open(trained, Provider.CPU), served.open(trained, options.provider)
    parity = check_parity(trained.reference, reference, devs[0])
    compared = {dev.preparation.collection.name: compare(reference, model, dev) for dev in devs}
    quality: dict[str, Any] = {
        "provider": model.session.choice.provider,
        "precision": model.session.choice.precision,
        "parity": parity,
        "budget": pipeline.config.packing.budget,
        "depth": options.depth,
        "collections": compared,
    }
    if options.collections:
        quality["nDCG@10 lost"] = check_ranking(compared)
    return quality


def _load(run: Path) -> Trained:
    for name in ("pipeline.json", TOKENIZER_FILE, FREQUENCIES_FILE):
        if not (run / name).exists():
            raise ExportError(f"{run}: has no {name}; give a run directory of keyblock-train")
    try:
        checkpoint = chosen(run)
    except CheckpointError as error:
        raise ExportError(str(error)) from None
    try:
        pipeline = load_run_pipeline(run)
        model = CrossEncoder.load(checkpoint, attention="eager")
        selects = pipeline.learned is not None and (run / CHOOSER).is_dir()  # one that selected in training alone is not served
        chooser = CrossEncoder.load(run / CHOOSER, attention="eager") if selects else None
    except (ValueError, OSError, RuntimeError) as error:
        raise ExportError(
            f"{run}: cannot be read ({' '.join(str(error).split())[:300]}); train it again, or copy it again"
        ) from None
    if pipeline.aggregator.learned != (model.aggregator is not None):
        has = "has no aggregator" if model.aggregator is None else "has an aggregator"
        raise ExportError(f"{run}: its pipeline's aggregator is {pipeline.aggregator.name!r}, but its model {has}; train it again")
    if pipeline.learned is not None and chooser is None and (due := _selector_run(run)):
        raise ExportError(f"{run}: has no {CHOOSER}, the model that selects its blocks ({due}); copy the run again")
    for encoder in (model, chooser):
        if encoder is not None:
            _check_positions(run, pipeline, encoder)
    return Trained(pipeline, model, chooser)


def _selector_run(run: Path) -> str | None:
    """The run or bundle whose model selects for this one, as its recipe names it."""
    recipe = _read_json(run / "provenance.json").get("recipe") or {}
    selector: str | None = recipe.get("selector_run")
    return selector


def _check_positions(run: Path, pipeline: Pipeline, model: CrossEncoder) -> None:
    longest, positions = pipeline.config.packing.budget_range[1], model.encoder.config.max_position_embeddings
    if bucket(longest) > positions:
        raise ExportError(
            f"{run}: budgets go to {longest} tokens, padded to {bucket(longest)}, but the encoder has {positions} positions; "
            "lower packing.budget_range in pipeline.json"
        )


def _halve(path: Path) -> None:
    graph = onnx.load(str(path))
    halve_weights(graph)
    onnx.save(graph, str(path))


def _entries(trained: Trained, precision: WeightPrecision, fused: dict[str, dict[str, int]]) -> dict[str, Any]:
    """The manifest's entries of the graphs."""
    entries: dict[str, Any] = {"graph": _entry(trained.model, precision, GRAPH_FILE, fused)}
    if trained.chooser is not None:
        entries["selector_graph"] = _entry(trained.chooser, precision, SELECTOR_FILE, fused)
    if (aggregator := trained.model.aggregator) is not None:
        hidden = trained.model.encoder.config.hidden_size
        entries["aggregator"] = AggregatorEntry(precision=precision.value, opset=OPSET, hidden=hidden, kind=aggregator.description)
    return entries


def _entry(model: CrossEncoder, precision: WeightPrecision, file: str, fused: dict[str, dict[str, int]]) -> GraphEntry:
    config = model.encoder.config
    return GraphEntry(
        file=file,
        precision=precision.value,
        opset=OPSET,
        inputs=dict.fromkeys(INPUTS, "int64"),
        output=output_name(model),
        max_length=config.max_position_embeddings,
        vocabulary_size=config.vocab_size,
        fused=fused[file],
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
