"""Trains a run by a recipe on collections; training.learn.run_directory describes the run's files."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from keyblock.description import PipelineConfig
from keyblock.fusion import Fusion
from training.data.collection import Collection, distinct_names
from training.data.files import write_json
from training.evaluate.calibration.calibrate import Plan, calibrate
from training.evaluate.calibration.systems import CalibratedRun
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
from training.model.starting import TOKENIZER_FILE, check_tokenizer, check_weights, start_at_cls, start_from
from training.recipe import Recipe, RecipeError, backbone_path, begun_from, find_start

MEASURED = 8  # measurements on dev of a training whose steps follow from its passes


def train(recipe: Recipe, collections: Sequence[Collection], run: Path, cache: Path | None = None) -> None:
    """Train, or continue the run in `run`; several processes train together if they were started so.

    Args:
        recipe: what to train.
        collections: the collections to train on; their order decides what is drawn.
        run: the run directory.
        cache: the directory that keeps prepared documents between runs; None: they are not kept.

    Raises RecipeError if `run` holds a run of another recipe, or the recipe does not fit the collections or the backbone;
    LockError if another process trains into it.
    """
    torch.manual_seed(recipe.seed)
    check_mixture(recipe, collections)
    check_gold(recipe, collections)
    unknown = list(unknown_judgements(collections))
    accelerator = make_accelerator()
    resumed = has_checkpoint(run)
    model, backbone = make_model(recipe, accelerator.device, resumed)
    with locked(run, wanted=accelerator.is_main_process):
        if accelerator.is_main_process:
            begin(recipe, collections, backbone, run)
            say(recipe, [*unknown, *dropped(recipe)])
        accelerator.wait_for_everyone()
        if (chooser := load_chooser(run)) is not None:
            chooser.to(accelerator.device)
        data = prepared_data(recipe, collections, run, accelerator, cache, chooser)
        objective = make_objective(recipe, data, run, accelerator.device, chooser, model.hidden_size)
        if not resumed:
            probe(model, objective, data.draw, recipe)  # the same in every process
        queries = sum(len(source.queries) for source in data.sources.values())
        trainer = Trainer(recipe, model, objective, data.draw, data.dev, run, accelerator, queries)
        trainer.train()
        data.close()
        if accelerator.is_main_process and recipe.init and recipe.steps and not trainer.kept_beginning:
            say(recipe, fit_again(recipe, collections, run))


def say(recipe: Recipe, lines: Iterable[str]) -> None:
    """Print lines to standard error, behind the recipe's name."""
    for line in lines:
        print(f"{recipe.name}: {line}", file=sys.stderr)


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
        write_json(run / "provenance.json", provenance(recipe, data.sources, run))
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
        check_weights("init", recipe.init)
        check_tokenizer("init", Path(recipe.init), backbone)
        start_from(model, Path(recipe.init))
    model.to(device)
    if recipe.gradient_checkpointing:
        model.checkpoint_activations()
    if recipe.longest > model.max_length:
        raise RecipeError(f"budgets or budget_range reach {recipe.longest} tokens, {backbone} reads {model.max_length} at most")
    return model, backbone


def fitted(recipe: Recipe, collections: Sequence[Collection]) -> Recipe:
    """The recipe with the steps of its `passes`, and without marks where no collection has gold passages to learn them from."""
    if recipe.marks and not any(collection.has_spans for collection in collections):
        recipe = recipe.model_copy(update={"marks": 0.0})
    if recipe.passes is None:
        return recipe
    queries = sum(len(collection.split(recipe.split)) for collection in collections)
    steps = recipe.steps if "steps" in recipe.model_fields_set else math.ceil(recipe.passes * queries / recipe.queries_of_a_step)
    measured = {} if "evaluate_every" in recipe.model_fields_set else {"evaluate_every": max(1, steps // MEASURED)}
    return recipe.model_copy(update={"steps": steps} | measured)


def dropped(recipe: Recipe) -> Iterator[str]:
    """Lines that say which parts of `init` the run does not keep; none without an `init`, or if it keeps all."""
    origin = begun_from(find_start(Path(recipe.init))) if recipe.init else {}
    if not origin:
        return
    before, after = (PipelineConfig.model_validate(one).model_dump() for one in (origin["pipeline"], recipe.pipeline.model_dump()))
    changed = [key for key in after if key != "encoder" and after[key] != before[key]]
    changed += ["encoder"] if (after["encoder"] is None) != (before["encoder"] is None) else []
    if changed:
        parts = "; ".join(f"{key} {_short(before[key])} becomes {_short(after[key])}" for key in changed)
        yield f"does not keep of {recipe.init}: {parts}"
    if origin.get("aggregator") and recipe.states:
        yield f"does not keep of {recipe.init}: the weights of its aggregator, which a bundle does not give; begin from its run"
    if origin.get("selector_graph") and not recipe.selector_run:
        yield f"does not keep of {recipe.init}: the model that selects its blocks; name its run in selector_run"
    if recipe.model.get("marks") and not recipe.marks and recipe.steps:
        yield "marks are not trained: no collection has gold passages (spans.jsonl), or the recipe's marks is 0"


def _short(part: Any) -> str:
    return str(part["name"]) if isinstance(part, dict) and "name" in part else json.dumps(part)


def fit_again(recipe: Recipe, collections: Sequence[Collection], run: Path) -> Iterator[str]:
    """Fit on dev what the recipe's pipeline holds of another model's scores; a line says what was fitted, or why nothing was."""
    config = recipe.pipeline
    fixed = {"fusion": config.fusion != Fusion(), "min_score": config.min_score, "spans": config.spans}
    names = [name for name, value in (fixed | {"second_look": config.second_look}).items() if value]
    if not names:
        return
    fusion = (config.first_stage or {}).get("name")
    plan = Plan(queries=recipe.dev_queries, depth=recipe.dev_depth, first_stage=fusion)
    kept = f"of {recipe.init}, which other weights may not suit, until keyblock-calibrate fits them"
    try:
        _, quality = calibrate(CalibratedRun(run), collections, plan)
    except ValueError as error:
        yield f"keeps the {', '.join(names)} {kept}: {error}"
        return
    if "spans" in names and "spans" not in quality["calibration"]:
        names.remove("spans")
        yield f"keeps the spans {kept}: no sentence that was read on dev has a mark and lies in a gold passage"
    if names:
        fitted = ", ".join(names)
        yield f"{fitted}: fitted anew on dev, {recipe.dev_queries} queries a collection at most; keyblock-calibrate takes more"


def check_mixture(recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Raise RecipeError unless the recipe's mixture names these collections, and `marked` one of them."""
    names = distinct_names(collections)
    if recipe.mixture and set(recipe.mixture) != set(names):
        raise RecipeError(
            f"mixture names {', '.join(sorted(recipe.mixture))}, but the collections are {', '.join(sorted(names))}; "
            "give each a share, or --set mixture={} for equal ones"
        )
    if recipe.marks and recipe.marked and not any(one.has_spans for one in collections if one.name in recipe.marked):
        raise RecipeError(
            f"marked names {', '.join(recipe.marked)}: no collection with gold passages among {', '.join(sorted(names))}, "
            "so the marker would learn that nothing answers. Name one, or --set marked=[] for all"
        )


def check_gold(recipe: Recipe, collections: Sequence[Collection]) -> None:
    """Raise RecipeError if the recipe trains on gold passages and a collection has none."""
    without = [collection.name for collection in collections if not collection.has_spans]
    if recipe.examples == "gold" and without:
        raise RecipeError(f"examples gold: {', '.join(without)} has no gold passages (spans.jsonl, or passages in its description)")


def unknown_judgements(collections: Sequence[Collection]) -> Iterator[str]:
    """A line for each collection directory with judgements of unknown documents. Raises CollectionError for too many of them."""
    for collection in collections:
        if line := collection.unknown_judgements():
            yield f"{collection.name}, {line}"


def fastest_attention(device: torch.device) -> str:
    """The attention implementation to train with on a device."""
    return attention.NAME if device.type == "cpu" else "sdpa"
