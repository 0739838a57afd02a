"""Trains a run by a recipe on collections; training.learn.run_directory describes the run's files."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from keyblock.description import PipelineConfig
from training.data.collection import Collection, distinct_names
from training.data.files import write_json
from training.evaluate.ranking import TEACHER, load_chooser, load_run_pipeline
from training.learn.data import Data
from training.learn.distillation import DistillationObjective
from training.learn.loop import Trainer, make_accelerator
from training.learn.objectives import RankingObjective
from training.learn.probing import probe
from training.learn.run_directory import begin, locked, provenance
from training.model import attention
from training.model.checkpoints import has_checkpoint
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.ranker_module import RankerModule
from training.model.starting import TOKENIZER_FILE, check_tokenizer, start_at_cls, start_from
from training.model.transformer_ranker import TransformerRanker, freeze_layers
from training.recipe import Recipe, RecipeError, backbone_path, begun_from, find_start


def train(
    recipe: Recipe, collections: Sequence[Collection], run: Path, tensorboard: bool = False, cache: Path | None = None
) -> None:
    """Train, or continue the run in `run`; several processes train together if they were started so.

    Args:
        recipe: what to train.
        collections: the collections to train on; their order decides what is drawn.
        run: the run directory.
        tensorboard: whether RUN/tensorboard is written.
        cache: the directory that keeps prepared documents between runs; None: they are not kept.

    Raises RecipeError if `run` holds a run of another recipe, or the recipe does not fit the collections or the backbone;
    LockError if another process trains into it.
    """
    torch.manual_seed(recipe.seed)
    check_mixture(recipe, collections)
    check_gold(recipe, collections)
    recipe = fitted(recipe, collections)
    accelerator = make_accelerator()
    resumed = has_checkpoint(run)
    model, backbone = make_model(recipe, accelerator.device, resumed)
    with locked(run, wanted=accelerator.is_main_process):
        if accelerator.is_main_process:
            begin(recipe, collections, backbone, run)
            print(*dropped(recipe), sep="\n", end="", file=sys.stderr)
        accelerator.wait_for_everyone()
        if (chooser := load_chooser(run)) is not None:
            chooser.to(accelerator.device)
        data = prepared_data(recipe, collections, run, accelerator, cache, chooser)
        objective = make_objective(recipe, data, run, accelerator.device, chooser, model.hidden_size)
        if not resumed:
            probe(model, objective, data.draw, recipe)  # the same in every process
        queries = sum(len(source.queries) for source in data.sources.values())
        Trainer(recipe, model, objective, data.draw, data.dev, run, tensorboard, accelerator, queries).train()
        data.close()


def prepared_data(
    recipe: Recipe,
    collections: Sequence[Collection],
    run: Path,
    accelerator: Accelerator,
    cache: Path | None,
    chooser: RankerModule | None = None,
) -> Data:
    """Prepare the run's data and write its provenance; see `train` for the arguments."""
    data = Data.build(recipe, collections, load_run_pipeline(run), run / TOKENIZER_FILE, cache, chooser)
    if accelerator.is_main_process:
        write_json(run / "provenance.json", provenance(recipe, data.sources))
    with accelerator.main_process_first():  # other processes find its prepared documents
        data.prepare()
    return data


def make_objective(
    recipe: Recipe, data: Data, run: Path, device: torch.device, chooser: RankerModule | None, width: int
) -> RankingObjective:
    """The recipe's objective: its loss, or the distance from the teacher in `run`.

    `width` is the size of the student's states. Raises RecipeError for a teacher of too few positions or of another state size.
    """
    if recipe.distillation is None:
        return RankingObjective(recipe, data.pipeline, data.examples, chooser)
    teacher = load_ranker(run / TEACHER, fastest_attention(device)).to(device)
    if recipe.longest > teacher.max_length:
        raise RecipeError(
            f"budgets or budget_range reach {recipe.longest} tokens, the teacher {recipe.distillation.teacher} "
            f"reads {teacher.max_length} at most"
        )
    if recipe.distillation.states and not (isinstance(teacher, CrossEncoder) and teacher.hidden_size == width):
        raise RecipeError(
            f"distillation.states compares the states of cross-encoders of one width, {width} here; the teacher "
            f"{recipe.distillation.teacher} is a {teacher.family['name']} of width {teacher.hidden_size}: leave states out"
        )
    return DistillationObjective(recipe, recipe.distillation, data.pipeline, data.examples, teacher, chooser)


def make_model(recipe: Recipe, device: torch.device, resumed: bool = False) -> tuple[RankerModule, str]:
    """The recipe's model at the start of training, and its backbone's path or name; a resumed run does not read `init` again.

    Raises RecipeError if the model has too few positions, ValueError if it cannot start from `init`.
    """
    backbone = backbone_path(recipe.backbone)
    model = new_ranker(recipe.model, backbone, recipe.dropout, fastest_attention(device), recipe.states, recipe.reshape)
    start_at_cls(model, backbone)
    if recipe.init and not resumed:
        check_tokenizer("init", Path(recipe.init), backbone)
        start_from(model, Path(recipe.init))
    model.to(device)
    if recipe.frozen_layers:
        if not isinstance(model, TransformerRanker):
            raise RecipeError(f"frozen_layers: a {recipe.model['name']} has no layers to freeze; leave it out")
        freeze_layers(model.transformer, recipe.frozen_layers)
    if recipe.gradient_checkpointing:
        model.checkpoint_activations()
    if recipe.longest > model.max_length:
        raise RecipeError(f"budgets or budget_range reach {recipe.longest} tokens, {backbone} reads {model.max_length} at most")
    return model, backbone


def fitted(recipe: Recipe, collections: Sequence[Collection]) -> Recipe:
    """The recipe with the steps that `passes` allow, and without marks where no collection has gold passages to learn them from."""
    if recipe.marks and not any(collection.parts.has_spans for collection in collections):
        recipe = recipe.model_copy(update={"marks": 0.0})
    if recipe.passes is None:
        return recipe
    queries = sum(len(collection.split(recipe.split)) for collection in collections)
    steps = min(recipe.steps, max(1, math.ceil(recipe.passes * queries / recipe.queries_of_a_step)))
    return recipe.model_copy(update={"steps": steps, "evaluate_every": min(recipe.evaluate_every, max(1, steps // 4))})


def dropped(recipe: Recipe) -> Iterator[str]:
    """A line for the parts of the pipeline of `init` that the recipe changes; none if it has no `init` or changes nothing."""
    before = begun_from(find_start(Path(recipe.init))).get("pipeline") if recipe.init else None
    if before is None:
        return
    before, after = (PipelineConfig.model_validate(one).model_dump() for one in (before, recipe.pipeline.model_dump()))
    changed = [key for key in after if key != "encoder" and after[key] != before[key]]
    changed += ["encoder"] if (after["encoder"] is None) != (before["encoder"] is None) else []
    if changed:
        parts = "; ".join(f"{key} {_short(before[key])} becomes {_short(after[key])}" for key in changed)
        yield f"{recipe.name}: does not keep of {recipe.init}: {parts}\n"


def _short(part: Any) -> str:
    return str(part["name"]) if isinstance(part, dict) and "name" in part else json.dumps(part)


def check_mixture(recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Raise RecipeError unless the recipe's mixture names these collections."""
    names = distinct_names(collections)
    if recipe.mixture and set(recipe.mixture) != set(names):
        raise RecipeError(
            f"mixture names {', '.join(sorted(recipe.mixture))}, but the collections are {', '.join(sorted(names))}; "
            "give each a share, or --set mixture={} for equal ones"
        )


def check_gold(recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Raise RecipeError if the recipe trains on gold passages and a collection has none."""
    without = [collection.name for collection in collections if not collection.parts.has_spans]
    if recipe.examples == "gold" and without:
        raise RecipeError(f"examples gold: {', '.join(without)} has no gold passages (spans.jsonl, or passages in its description)")


def fastest_attention(device: torch.device) -> str:
    """The attention implementation to train with on a device."""
    return attention.NAME if device.type == "cpu" else "sdpa"
