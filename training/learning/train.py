"""From a recipe and collections to a trained run; training.learning.run_directory says what it holds."""

from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator

from training.collections.collection import Collection, distinct_names
from training.collections.json_files import write_json
from training.evaluation.ranking import TEACHER, load_chooser, load_run_pipeline
from training.learning.data import Data
from training.learning.distillation import DistillationObjective
from training.learning.lock import locked
from training.learning.loop import Trainer, make_accelerator
from training.learning.objectives import RankingObjective
from training.learning.probing import probe
from training.learning.run_directory import begin, provenance
from training.models import attention
from training.models.checkpoints import has_checkpoint
from training.models.cross_encoder import CrossEncoder
from training.models.families import load_ranker, new_ranker
from training.models.ranker_module import RankerModule
from training.models.starting import TOKENIZER_FILE, check_tokenizer, start_at_cls, start_from
from training.recipe import Recipe, RecipeError, backbone_path


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
    resumed = has_checkpoint(run)
    model, backbone = make_model(recipe, accelerator.device, resumed)
    with locked(run, wanted=accelerator.is_main_process):
        if accelerator.is_main_process:
            begin(recipe, collections, backbone, run)
        accelerator.wait_for_everyone()
        if (chooser := load_chooser(run)) is not None:
            chooser.to(accelerator.device)
        data = prepared_data(recipe, collections, run, accelerator, cache, chooser)
        objective = make_objective(recipe, data, run, accelerator.device, chooser, model.hidden_size)
        if not resumed:
            probe(model, objective, data.draw, recipe)  # every process alike
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


def make_objective(
    recipe: Recipe, data: Data, run: Path, device: torch.device, chooser: RankerModule | None, width: int
) -> RankingObjective:
    """The recipe's: its loss, or its distance from the teacher that `run` keeps.

    `width` is that of the student's states. Raises RecipeError for a teacher that reads too few tokens, or whose states are others.
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
    """The recipe's model as training begins, and where its backbone is; a resumed run no longer needs what it started from.

    Raises RecipeError when it reads too few tokens, ValueError when it cannot start from what `init` names.
    """
    backbone = backbone_path(recipe.backbone)
    model = new_ranker(recipe.model, backbone, recipe.dropout, fastest_attention(device), recipe.states, recipe.reshape)
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
