"""The run directory: its files, and the recipe that it belongs to.

RUN holds: recipe.yaml, pipeline.json, tokenizer.json, frequencies.tsv, provenance.json, log.jsonl, curves.png and checkpoint/
(config.json, model.safetensors, head.safetensors, tokenizer.json, optimizer state). Some recipes also need starts.json (the sha256
of the weights of each run or bundle that the recipe names), best/ (the model that
was best on dev), chooser/ (another model that selects blocks), teacher/ (the model whose scores are learned), token_vectors.npz (a
pipeline encoder's file).
"""

import os
import platform
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from keyblock import lock
from keyblock.description import PipelineConfig
from keyblock.encoders import ENCODERS
from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import Analyzer, DocumentFrequencies
from training.data.collection import Collection
from training.data.files import read_json, write_json
from training.data.first_stage import candidate_pool
from training.data.sampling import Source
from training.evaluate.ranking import CHOOSER, TEACHER, load_run_pipeline
from training.model.starting import (
    TOKENIZER_FILE,
    backbone_tokenizer,
    bundle_backbone,
    check_tokenizer,
    check_weights,
    read_ranker,
    weights_digest,
)
from training.recipe import Recipe, RecipeError, backbone_path, load_recipe

STARTS_FILE = "starts.json"


class LockError(ValueError):
    """Another process trains into the run directory."""


def locked(run: Path, wanted: bool = True) -> AbstractContextManager[None]:
    """Lock RUN, which is created if missing; without `wanted` do nothing. Raises LockError if another process holds the lock."""
    held = LockError(f"{run}: another process is training into it; wait for it, or choose another --out")
    return lock.locked(run, held) if wanted else nullcontext()


def begin(recipe: Recipe, collections: Sequence[Collection], backbone: str, run: Path) -> None:
    """Create the run directory with recipe, pipeline and its parts, and copies of the models that select or teach.

    Raises RecipeError if it holds a run of another recipe.
    """
    run.mkdir(parents=True, exist_ok=True)
    fresh = _claim(run, recipe, collections)
    make_pipeline(recipe, collections, backbone, run)
    if recipe.selector_run is not None:
        _keep(run / CHOOSER, "selector_run", Path(recipe.selector_run), backbone)
    if recipe.distillation is not None:
        _keep(run / TEACHER, "distillation.teacher", Path(recipe.distillation.teacher), backbone)
    if fresh and recipe.starts:
        write_json(run / STARTS_FILE, {key: {"path": at, "sha256": weights_digest(Path(at))} for key, at in recipe.starts.items()})


def _keep(target: Path, key: str, source: Path, backbone: str) -> None:
    """Copy another run's model to `target` in RUN, once: a resumed run keeps its copy. The recipe's key `key` names `source`."""
    if target.is_dir():
        return
    check_weights(key, str(source))
    check_tokenizer(key, source, backbone)
    partial = target.with_suffix(".partial")
    partial.mkdir(exist_ok=True)
    own = bundle_backbone(source)  # may have another number of layers
    read_ranker(source, backbone_path(own) if own else backbone).save(partial)
    os.replace(partial, target)


def _claim(run: Path, recipe: Recipe, collections: Sequence[Collection]) -> bool:
    """Write the recipe into RUN, or check that a run that began there has the same recipe and collections. True if none began."""
    path, names = run / "recipe.yaml", [c.name for c in collections]
    if any((run / trace).exists() for trace in ("log.jsonl", "checkpoint", "iteration-1")):
        if load_recipe(path) != recipe:
            raise RecipeError(f"{run}: holds a run of another recipe; choose another --out, or the recipe in {path}")
        begun = list(read_json(run / "provenance.json").get("collections", {}))
        if begun != names:  # their order decides what is drawn
            raise RecipeError(f"{run}: began on the collections {', '.join(begun)}, in that order, not on {', '.join(names)}")
        return False
    (run / "frequencies.tsv").unlink(missing_ok=True)  # left by a run that never began, perhaps on other collections
    for name in (CHOOSER, TEACHER):
        shutil.rmtree(run / name, ignore_errors=True)  # or by another recipe
    for file in (STARTS_FILE, *(encoder.carried_as for encoder in ENCODERS.members())):
        (run / file).unlink(missing_ok=True)
    path.write_text(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False), encoding="utf-8")
    return True


def make_pipeline(recipe: Recipe, collections: Iterable[Collection], backbone: str, run: Path) -> Pipeline:
    """Build the pipeline and write its parts into RUN; frequencies are counted over the training pool once."""
    if (Path(backbone) / TOKENIZER_FILE).exists():
        shutil.copy(Path(backbone) / TOKENIZER_FILE, run / TOKENIZER_FILE)
    else:
        backbone_tokenizer(backbone).save(str(run / TOKENIZER_FILE))
    path = run / "frequencies.tsv"
    if not path.exists():
        analyzer, partial = Analyzer(recipe.pipeline.analyzer), run / "frequencies.partial"
        if recipe.frequencies is None:
            DocumentFrequencies.count((t for c in collections for t in _pool_texts(c, recipe.split)), analyzer).write(partial)
        else:
            _copy(Path(recipe.frequencies), partial, "frequencies")
        os.replace(partial, path)  # a truncated table would still be readable
    write_json(run / "pipeline.json", _carried(recipe.pipeline, run).model_dump(mode="json"))
    return load_run_pipeline(run)


def _carried(pipeline: PipelineConfig, run: Path) -> PipelineConfig:
    """The pipeline, with its encoder's file copied into RUN if it has an encoder; a resumed run keeps its copy."""
    if pipeline.encoder is None:
        return pipeline
    encoder = ENCODERS.create(pipeline.encoder)
    carried = encoder.carried()
    if not (run / carried.file).exists():
        partial = run / f"{carried.file}.partial"
        _copy(Path(encoder.file), partial, "pipeline.encoder")
        os.replace(partial, run / carried.file)
    return pipeline.model_copy(update={"encoder": carried.describe()})


def _copy(source: Path, target: Path, key: str) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise RecipeError(f"{key}: {source} cannot be read ({error.strerror}); give its path") from None


def _pool_texts(collection: Collection, split: str) -> Iterable[str]:
    for doc_id in candidate_pool(collection, split):
        _, title, text = collection.document(doc_id)
        yield f"{title} {text}"


def provenance(recipe: Recipe, sources: dict[str, Source], run: Path) -> dict[str, Any]:
    """The provenance of a model for its bundle: recipe, what it began from, collections and software versions."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        **({"starts": read_json(run / STARTS_FILE)} if (run / STARTS_FILE).exists() else {}),
        "collections": {name: {"split": recipe.split, "queries": len(source.queries)} for name, source in sources.items()},
        "software": {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        | {"python": platform.python_version()},
    }
