"""The systems that can be calibrated: a training run, rewritten in place, or a bundle, copied with a new pipeline."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from keyblock import __version__
from keyblock.bundle import (
    MANIFEST_FILE,
    TOKENIZER_FILE,
    Bundle,
    BundleError,
    check_target,
    load_bundle,
    write_bundle,
)
from keyblock.description import PipelineConfig
from keyblock.fingerprint import preparation_fingerprint
from keyblock.fusion import FEATURES, Fusion
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import open_model
from keyblock.scoring import Model
from training.data.collection import Collection
from training.data.files import write_json
from training.data.prepared_cache import default_directory
from training.evaluate.ranking import CHOOSER, LocalRanker, bundle_ranker, load_run_pipeline, run_ranker
from training.model.checkpoints import chosen
from training.recipe import find_start, load_recipe

SCORES = "dev-scores"  # the directory of the kept scores in a run


class Calibrated(ABC):
    """A model and a pipeline whose fusion, budget and passages are learned on dev."""

    @property
    @abstractmethod
    def pipeline(self) -> Pipeline:
        """The pipeline before calibration. Raises ValueError or OSError if there is none."""

    @property
    @abstractmethod
    def scores_directory(self) -> Path:
        """The directory that keeps scores between calibrations of the same model and pipeline."""

    @abstractmethod
    def own_ranker(self, collection: Collection, longest: int) -> LocalRanker:
        """The model with its own pipeline. Raises ValueError where it cannot read sequences of `longest` tokens."""

    @abstractmethod
    def start(self) -> Fusion | None:
        """The calibrated fusion that fitting starts from; None: the logit alone."""

    @abstractmethod
    def write(self, config: PipelineConfig, quality: Mapping[str, Any]) -> None:
        """Write the learned pipeline and the measured quality."""

    def ranker(self, own: LocalRanker, passages: int | None) -> LocalRanker:
        """The ranker with this number of passages, or `own` for None. Prepared documents are not prepared again.

        Raises ValueError if the pipeline's aggregator has no number of passages.
        """
        if passages is None:
            return own
        return own.with_pipeline(aggregator=with_passages(self.pipeline.config, passages))


@dataclass(frozen=True)
class CalibratedRun(Calibrated):
    """A training run: RUN/pipeline.json and RUN/quality.json are written."""

    run: Path

    @cached_property
    def pipeline(self) -> Pipeline:
        """See Calibrated."""
        return load_run_pipeline(self.run)

    @cached_property
    def scores_directory(self) -> Path:
        """See Calibrated."""
        weights = [path for directory in (chosen(self.run), self.run / CHOOSER) for path in sorted(directory.glob("*.safetensors"))]
        contents = (path.read_bytes() for path in (*weights, self.run / "frequencies.tsv"))
        return self.run / SCORES / fingerprint(self.pipeline, self.run / TOKENIZER_FILE, contents)

    def own_ranker(self, collection: Collection, longest: int) -> LocalRanker:
        """See Calibrated."""
        return run_ranker(self.run, collection, longest)

    def start(self) -> Fusion | None:
        """See Calibrated: the fusion of the run or bundle that the recipe's `init` names, if it exists."""
        path = self.run / "recipe.yaml"
        init = load_recipe(path).init if path.exists() else None
        if init is None or not (origin := find_start(Path(init))).is_dir():
            return None
        pipeline = load_bundle(origin).pipeline if (origin / MANIFEST_FILE).exists() else load_run_pipeline(origin)
        return calibrated_fusion(pipeline)

    def write(self, config: PipelineConfig, quality: Mapping[str, Any]) -> None:
        """See Calibrated."""
        write_json(self.run / "pipeline.json", config.model_dump(mode="json"))
        write_json(self.run / "quality.json", dict(quality))


@dataclass(frozen=True)
class CalibratedBundle(Calibrated):
    """A bundle, trained here or imported. A copy with the learned pipeline is written to `out`, which is new or empty.

    Raises BundleError if the bundle cannot be read, or `out` is not empty or lies inside the bundle.
    """

    path: Path
    out: Path

    def __post_init__(self) -> None:
        if self.out.resolve().is_relative_to(self.path.resolve()):
            raise BundleError(f"{self.out}: lies in the bundle {self.path}, which stays as it is; give a directory outside of it")
        check_target(self.out, overwrite=False)

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle before calibration."""
        return load_bundle(self.path)

    @cached_property
    def model(self) -> Model:
        """The bundle's model, opened once for all collections."""
        return open_model(self.bundle)

    @property
    def pipeline(self) -> Pipeline:
        """See Calibrated."""
        return self.bundle.pipeline

    @cached_property
    def scores_directory(self) -> Path:
        """See Calibrated: a directory in the cache, since nothing is written into a bundle."""
        digests = (entry.sha256.encode() for _, entry in sorted(self.bundle.manifest.files.items()))
        return default_directory() / SCORES / fingerprint(self.pipeline, self.path / TOKENIZER_FILE, digests)

    def own_ranker(self, collection: Collection, longest: int) -> LocalRanker:
        """See Calibrated."""
        positions = min((entry.max_length for entry in self.bundle.manifest.encoders), default=longest)
        if longest > positions:
            raise ValueError(f"{self.path}: a budget of {longest} tokens exceeds the {positions} that its model reads")
        return bundle_ranker(self.bundle, self.model, collection, longest)

    def start(self) -> Fusion | None:
        """See Calibrated: the bundle's own fusion."""
        return calibrated_fusion(self.pipeline)

    def write(self, config: PipelineConfig, quality: Mapping[str, Any]) -> None:
        """See Calibrated: the quality that the export or import measured stays beside the new one."""
        manifest = self.bundle.manifest
        updated = manifest.model_copy(update={"pipeline": config, "quality": manifest.quality | dict(quality)})
        write_bundle(self.out, updated, {name: self.path / name for name in manifest.files})


def calibrated_fusion(pipeline: Pipeline) -> Fusion | None:
    """The pipeline's fusion; None if it is the logit alone, as before any calibration."""
    return None if pipeline.config.fusion == Fusion() else pipeline.config.fusion


def with_passages(config: PipelineConfig, passages: int) -> dict[str, Any]:
    """The aggregator's description with this number of passages. Raises ValueError for an aggregator without such a number."""
    if "passages" not in config.aggregator:
        raise ValueError(f"--passages: aggregator {config.aggregator['name']!r} reads no number of passages; leave it out")
    return config.aggregator | {"passages": passages}


def fingerprint(pipeline: Pipeline, tokenizer_file: Path, contents: Iterable[bytes]) -> str:
    """A digest of all that decides scores: the model's files, this version, and the pipeline without what calibration writes.

    Args:
        pipeline: the model's pipeline.
        tokenizer_file: the file of its tokenizer.
        contents: bytes that identify the model's files.
    """
    learned: Any = {
        **dict.fromkeys(("fusion", "activation", "min_score", "spans", "first_stage", "second_look"), True),
        "packing": {"budget", "budget_range"},
        "aggregator": {"passages"},
    }
    digest = hashlib.sha256(pipeline.config.model_dump_json(exclude=learned).encode())
    made_by = (preparation_fingerprint(pipeline, tokenizer_file), __version__, *FEATURES)
    for content in (*(part.encode() for part in made_by), *contents):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]
