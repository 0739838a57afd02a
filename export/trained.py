"""Loads what is exported: a training run's model and pipeline, or those of a bundle that is written again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from export import ExportError
from export.options import Average, VariantKind
from keyblock.bundle import FREQUENCIES_FILE, MANIFEST_FILE, TOKENIZER_FILE, load_bundle
from keyblock.pipeline import Pipeline
from keyblock.runtime.batching import bucket
from training.data.files import read_json
from training.data.types import FileError
from training.evaluate.ranking import CHOOSER, load_run_pipeline
from training.evaluate.scoring import TorchModel
from training.model.checkpoints import chosen
from training.model.families import load_ranker
from training.model.ranker_module import RankerModule
from training.model.starting import check_weights, read_ranker, weights_digest
from training.recipe import backbone_path, find_start

LONGEST_NAME = 100  # characters of a bundle's name


@dataclass(frozen=True)
class Trained:
    """The parts of a run or a bundle.

    Attributes:
        name: the model's default name.
        pipeline: the run's pipeline.
        model: the ranker, with the aggregator that its pipeline may need.
        chooser: the model that selects blocks, if that is another model (BinB2).
        provenance: the model's origin, for the manifest.
        quality: the model's measurements, for the manifest.
    """

    name: str
    pipeline: Pipeline
    model: RankerModule
    chooser: RankerModule | None
    provenance: dict[str, Any]
    quality: dict[str, Any]

    @property
    def reference(self) -> TorchModel:
        """The model in PyTorch in fp32, with which the graphs are compared."""
        return TorchModel(self.model, self.pipeline.tokenizer, bf16=False, chooser=self.chooser)

    def averaged(self, other: Average) -> Self:
        """The same with each weight averaged with another model's, to keep more of what that one knew (WiSE-FT).

        What was measured of the run is left out, since fusion, threshold and spans have to be fitted again. Raises as
        `load_trained`, and ExportError for a model of another architecture and for other weights than the path's hash names.
        """
        try:
            check_weights("--average", str(other.path))
        except ValueError as error:
            raise ExportError(_line(error)) from None
        theirs = load_trained(find_start(other.path)).model
        if _architecture(self.model) != _architecture(theirs):
            raise ExportError(f"{other.path}: its model is of another architecture than the run's, so they cannot be averaged")
        ours, others = self.model.state_dict(), theirs.state_dict()
        self.model.load_state_dict({name: torch.lerp(others[name], one, other.share) for name, one in ours.items()})
        average = {"with": weights_digest(other.path), "share": other.share}
        return replace(self, quality={}, provenance=self.provenance | {"average": average})


def _architecture(model: RankerModule) -> tuple[Any, ...]:
    """What two models must have in common for their weights to mean the same."""
    config = getattr(getattr(model, "encoder", None), "config", None)
    return model.family, getattr(config, "num_attention_heads", None), {name: one.shape for name, one in model.state_dict().items()}


def load_trained(source: Path) -> Trained:
    """Read a training run, or a bundle. Raises ExportError, CheckpointError or BundleError for an incomplete one."""
    trained = _load_bundle(source) if (source / MANIFEST_FILE).exists() else _load_run(source)
    if trained.pipeline.aggregator.learned != trained.model.combines:
        has = "has an aggregator" if trained.model.combines else "has no aggregator"
        raise ExportError(
            f"{source}: its pipeline's aggregator is {trained.pipeline.aggregator.name!r}, but its model {has}; train it again"
        )
    for encoder in (trained.model, trained.chooser):
        if encoder is not None:
            _check_positions(source, trained.pipeline, encoder)
    return trained


def _load_bundle(path: Path) -> Trained:
    bundle = load_bundle(path)
    manifest = bundle.manifest
    if manifest.aggregator or manifest.selector_graph:
        raise ExportError(f"{path}: a bundle of several graphs cannot be written anew; export the run that it was made from")
    if "import" in manifest.provenance:
        raise ExportError(f"{path}: was imported; import its model again, with the --variant or --precision that it is to have")
    backbone = _recipe(manifest.provenance).get("backbone")
    if not isinstance(backbone, str) or not backbone:
        raise ExportError(f"{path}: does not say which backbone it was trained on; export the run that it was made from")
    try:
        model = read_ranker(path, backbone_path(backbone), attention="eager")
    except ValueError as error:
        raise ExportError(f"{_line(error)}; export the run that the bundle was made from") from None
    provenance = {key: value for key, value in manifest.provenance.items() if key != "export"}
    quality = {key: value for key, value in manifest.quality.items() if key != "export"}
    return Trained(manifest.name, bundle.pipeline, model, None, provenance, quality)


def _load_run(run: Path) -> Trained:
    for name in ("pipeline.json", TOKENIZER_FILE, FREQUENCIES_FILE):
        if not (run / name).exists():
            raise ExportError(f"{run}: has no {name}; give a run directory of keyblock-train")
    checkpoint = chosen(run)
    try:
        pipeline = load_run_pipeline(run)
        model = load_ranker(checkpoint, attention="eager")
        selects = pipeline.asks_model and (run / CHOOSER).is_dir()  # a chooser that selected only in training is not served
        chooser = load_ranker(run / CHOOSER, attention="eager") if selects else None
    except (ValueError, OSError, RuntimeError) as error:
        raise ExportError(f"{run}: cannot be read ({_line(error)}); train it again, or copy it again") from None
    provenance, quality = (_read_optional(run / f"{name}.json") for name in ("provenance", "quality"))
    if pipeline.asks_model and chooser is None and (due := _recipe(provenance).get("selector_run")):
        raise ExportError(f"{run}: has no {CHOOSER}, the model that selects its blocks ({due}); copy the run again")
    return Trained(_own_name(run, _recipe(provenance)), pipeline, model, chooser, provenance, quality)


def _own_name(run: Path, recipe: Mapping[str, Any]) -> str:
    """The recipe's name behind that of the bundle that the run began from; the directory's name without a recipe."""
    name, began = str(recipe.get("name") or run.resolve().name), str(_bundle_begun_from(recipe).get("name", ""))
    return (name if not began or began.endswith(name) else f"{began}-{name}")[:LONGEST_NAME]


def variants_begun_with(source: Path) -> list[VariantKind]:
    """The variants of the bundle that a run began from; none for a run that began elsewhere, and for a bundle."""
    recipe = _recipe(_read_optional(source / "provenance.json"))
    return [VariantKind(kind) for kind in _bundle_begun_from(recipe).get("variants", {})]


def _bundle_begun_from(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of the bundle that a recipe's `init` names; empty without one, or if it is not there any more."""
    init = recipe.get("init")
    return _read_optional(find_start(Path(init)) / MANIFEST_FILE) if init else {}


def _recipe(provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recipe in a provenance, which has no fixed form; empty if there is none."""
    recipe = provenance.get("recipe")
    return recipe if isinstance(recipe, dict) else {}


def _check_positions(run: Path, pipeline: Pipeline, model: RankerModule) -> None:
    longest, positions = pipeline.config.packing.budget_range[1], model.max_length
    if bucket(longest) > positions:
        raise ExportError(
            f"{run}: budgets go to {longest} tokens, padded to {bucket(longest)}, but the encoder has {positions} positions; "
            "lower packing.budget_range in pipeline.json"
        )


def _read_optional(path: Path) -> dict[str, Any]:
    """The contents of a JSON file of the run; empty if the file does not exist."""
    if not path.exists():
        return {}
    try:
        return read_json(path)
    except FileError as error:
        raise ExportError(f"{error}; restore or delete it") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
