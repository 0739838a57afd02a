"""From a recipe and collections to a run directory.

RUN holds: recipe.yaml, pipeline.json, tokenizer.json, frequencies.tsv, provenance.json, log.jsonl, curves.png and checkpoint/
(config.json, model.safetensors, head.safetensors, tokenizer.json, optimizer state); where the recipe asks for them also best/ (the
model that was best on dev), chooser/ (the model that selects blocks, where it is another) and tensorboard/.
"""

import os
import platform
import shutil
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import Accelerator

from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import Analyzer
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from training.collections.collection import Collection, distinct_names
from training.collections.first_stage import candidate_pool
from training.collections.json_files import read_json, write_json
from training.evaluation.ranking import CHOOSER, load_chooser, load_run_pipeline
from training.examples.sampling import Source
from training.learning.data import Data
from training.learning.lock import alone_in
from training.learning.loop import Trainer, make_accelerator
from training.learning.objectives import RankingObjective
from training.models import attention
from training.models.checkpoints import has_checkpoint
from training.models.families import new_ranker
from training.models.ranker_module import RankerModule
from training.models.starting import TOKENIZER_FILE, backbone_tokenizer, check_tokenizer, read_ranker, start_at_cls, start_from
from training.recipe import Recipe, RecipeError, backbone_path, load_recipe


def train(
    recipe: Recipe, collections: Sequence[Collection], run: Path, tensorboard: bool = False, cache: Path | None = None
) -> None:
    """Train, or continue the run that `run` holds; several processes together where they were started so.

    Args:
        recipe: what to train.
        collections: on what; their order decides what is drawn.
        run: the run directory.
        tensorboard: whether RUN/tensorboard is written.
        cache: where prepared documents are kept between runs; nowhere when left out.

    Raises RecipeError when `run` holds a run of another recipe, or the recipe does not fit the collections or the backbone;
    LockError when another process trains into it.
    """
    torch.manual_seed(recipe.seed)
    check_mixture(recipe, collections)
    check_gold(recipe, collections)
    accelerator = make_accelerator()
    model, backbone = make_model(recipe, accelerator.device, resumed=has_checkpoint(run))
    with alone_in(run, wanted=accelerator.is_main_process):
        if accelerator.is_main_process:
            begin(recipe, collections, backbone, run)
        accelerator.wait_for_everyone()
        if (chooser := load_chooser(run)) is not None:
            chooser.to(accelerator.device)
        data = prepared_data(recipe, collections, run, accelerator, cache, chooser)
        objective = RankingObjective(recipe, data.pipeline, data.examples, chooser)
        Trainer(recipe, model, objective, data.draw, data.dev, run, tensorboard, accelerator).train()
        data.close()


def prepared_data(
    recipe: Recipe,
    collections: Sequence[Collection],
    run: Path,
    accelerator: Accelerator,
    cache: Path | None,
    chooser: RankerModule | None = None,
) -> Data:
    """What the run trains on, prepared, with its provenance written; see `train` for the arguments."""
    data = Data.build(recipe, collections, load_run_pipeline(run), run / TOKENIZER_FILE, cache, chooser)
    if accelerator.is_main_process:
        write_json(run / "provenance.json", provenance(recipe, data.sources))
    with accelerator.main_process_first():  # the others find what it prepared
        data.prepare()
    return data


def begin(recipe: Recipe, collections: Sequence[Collection], backbone: str, run: Path) -> None:
    """Make the run directory: recipe, pipeline with its parts, and the model that selects where another one does.

    Raises RecipeError when it holds a run of another recipe.
    """
    run.mkdir(parents=True, exist_ok=True)
    _claim(run, recipe, collections)
    make_pipeline(recipe, collections, backbone, run)
    if recipe.selector_run is not None and not (run / CHOOSER).is_dir():
        check_tokenizer("selector_run", Path(recipe.selector_run), backbone)
        partial = run / f"{CHOOSER}.partial"
        partial.mkdir(exist_ok=True)
        read_ranker(Path(recipe.selector_run), backbone).save(partial)
        os.replace(partial, run / CHOOSER)


def make_model(recipe: Recipe, device: torch.device, resumed: bool = False) -> tuple[RankerModule, str]:
    """The recipe's model as training begins, and where its backbone is; a resumed run no longer needs what it started from.

    Raises RecipeError when it reads too few tokens, ValueError when it cannot start from what `init` names.
    """
    backbone = backbone_path(recipe.backbone)
    model = new_ranker(recipe.model, backbone, recipe.dropout, fastest_attention(device), recipe.aggregator)
    start_at_cls(model, backbone)
    if recipe.init and not resumed:
        check_tokenizer("init", Path(recipe.init), backbone)
        start_from(model, Path(recipe.init))
    model.to(device)
    if recipe.gradient_checkpointing:
        model.checkpoint_activations()
    if recipe.longest > model.max_length:
        raise RecipeError(f"budgets or budget_range reach {recipe.longest} tokens, {backbone} reads {model.max_length} at most")
    return model, backbone


def check_mixture(recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Raise RecipeError unless the recipe's mixture is of these collections."""
    names = distinct_names(collections)
    if recipe.mixture and set(recipe.mixture) != set(names):
        raise RecipeError(
            f"mixture names {', '.join(sorted(recipe.mixture))}, but the collections are {', '.join(sorted(names))}; "
            "give each a share, or --set mixture={} for equal ones"
        )


def check_gold(recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Raise RecipeError where gold passages are trained on that nothing says."""
    without = [collection.name for collection in collections if not collection.parts.has_spans]
    if recipe.examples == "gold" and without:
        raise RecipeError(f"examples gold: {', '.join(without)} has no gold passages (spans.jsonl, or passages in its description)")


def fastest_attention(device: torch.device) -> str:
    """The attention implementation to train with on a device."""
    return attention.NAME if device.type == "cpu" else "sdpa"


def _claim(run: Path, recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Write the recipe into RUN, or make sure that what began there is of the same one, on the same collections."""
    path, names = run / "recipe.yaml", [c.name for c in collections]
    if any((run / begun).exists() for begun in ("log.jsonl", "checkpoint", "iteration-1")):
        if load_recipe(path) != recipe:
            raise RecipeError(f"{run}: holds a run of another recipe; choose another --out, or the recipe in {path}")
        begun = list(read_json(run / "provenance.json").get("collections", {}))
        if begun != names:  # their order decides what is drawn
            raise RecipeError(f"{run}: began on the collections {', '.join(begun)}, in that order, not on {', '.join(names)}")
    else:
        (run / "frequencies.tsv").unlink(missing_ok=True)  # of a try that never began: perhaps of other collections
        shutil.rmtree(run / CHOOSER, ignore_errors=True)  # or by another recipe
        path.write_text(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


def make_pipeline(recipe: Recipe, collections: Iterable[Collection], backbone: str, run: Path) -> Pipeline:
    """Build the pipeline and write its parts into RUN; frequencies are counted over the training pool once."""
    if (Path(backbone) / TOKENIZER_FILE).exists():
        shutil.copy(Path(backbone) / TOKENIZER_FILE, run / TOKENIZER_FILE)
    else:
        backbone_tokenizer(backbone).save(str(run / TOKENIZER_FILE))
    path = run / "frequencies.tsv"
    if not path.exists():
        analyzer, partial = Analyzer(recipe.pipeline.analyzer), run / "frequencies.partial"
        DocumentFrequencies.count((t for c in collections for t in _pool_texts(c, recipe.split)), analyzer).write(partial)
        os.replace(partial, path)  # a table cut short by a kill would still read as one
    write_json(run / "pipeline.json", recipe.pipeline.model_dump(mode="json"))
    return Pipeline(recipe.pipeline, Tokenizer(run / TOKENIZER_FILE), DocumentFrequencies.read(path))


def _pool_texts(collection: Collection, split: str) -> Iterable[str]:
    for doc_id in candidate_pool(collection, split):
        _, title, text = collection.document(doc_id)
        yield f"{title} {text}"


def provenance(recipe: Recipe, sources: dict[str, Source]) -> dict[str, Any]:
    """What a bundle says of how its model was made."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        "collections": {name: {"split": recipe.split, "queries": len(source.queries)} for name, source in sources.items()},
        "software": {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        | {"python": platform.python_version()},
    }
