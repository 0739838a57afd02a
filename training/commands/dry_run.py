"""Says what a recipe would do, without training or downloading. Looks up everything that it names; a missing part is an error."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.data.collection import Collection
from training.data.types import CollectionError, Plan
from training.declarations import EncoderShape
from training.learn.train import check_gold, check_mixture
from training.model.devices import fastest_device, in_words
from training.model.starting import find_start
from training.recipe import Recipe, RecipeError, backbone_path

TESTED = "test"
EXPORTED = ("bert",)  # architectures whose graphs keyblock-export can fuse


class Backbone(NamedTuple):
    """An encoder by its configuration.

    Attributes:
        positions: tokens of the longest sequence that it reads.
        hidden: the size of a [CLS] state.
        kind: its architecture, as transformers names it.
        layers: the number of layers.
    """

    positions: int
    hidden: int
    kind: str
    layers: int


def dry_run(recipe: Recipe, collections: Sequence[Collection]) -> list[str]:
    """The lines that say what training would read and what is missing.

    Raises RecipeError, CollectionError or FileError in one line for missing or damaged parts.
    """
    check_mixture(recipe, collections)
    backbone = reshaped(local_backbone(recipe.backbone), recipe.reshape)
    check_sizes(recipe, backbone)
    check_gold(recipe, collections)
    plans = [(collection.name, plan_collection(collection, recipe.split)) for collection in collections]
    exported = backbone is None or backbone.kind in EXPORTED
    missing = [*_runs(recipe), *(path for _, plan in plans for path in plan.missing)]
    return [
        f"{recipe.name}: {system(recipe)}",
        *_backbone_lines(recipe, backbone),
        *(f"{name}, {line}" for name, plan in plans for line in plan.reads),
        f"{recipe.steps:,} steps; computes in {in_words(recipe.precision, fastest_device())}",
        *(f"to bring before it can start: {path}" for path in dict.fromkeys(missing)),
        "everything else resolves" if missing or not exported else "everything resolves",
    ]


def local_backbone(name: str) -> Backbone | None:
    """The encoder's sizes, from a local path or the hub's cache; None if it is yet to be downloaded.

    Raises RecipeError for a local path that holds no encoder.
    """
    from transformers import AutoConfig

    path = backbone_path(name)
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        if Path(path).is_absolute() or Path(path).exists():
            raise RecipeError(f"backbone {name}: holds no encoder ({' '.join(str(error).split())})") from None
        return None
    return Backbone(config.max_position_embeddings, config.hidden_size, config.model_type, config.num_hidden_layers)


def reshaped(backbone: Backbone | None, shape: EncoderShape | None) -> Backbone | None:
    """The encoder's sizes with the layers that the recipe's `reshape` keeps. Raises RecipeError for others than it has."""
    if backbone is None or shape is None or not shape.kept:
        return backbone
    if shape.kept[-1] >= backbone.layers:
        raise RecipeError(f"reshape asks for {shape.kept[-1] + 1} layers, and {backbone.kind} has {backbone.layers}")
    return backbone._replace(layers=len(shape.kept))


def check_sizes(recipe: Recipe, backbone: Backbone | None) -> None:
    """Raise RecipeError if the recipe's sequences or its learned aggregator do not fit the backbone."""
    if backbone is None:
        return
    if recipe.longest > backbone.positions:
        raise RecipeError(
            f"budgets or budget_range reach {recipe.longest} tokens, {recipe.backbone} reads {backbone.positions} at most"
        )
    module = recipe.states or {}
    if not module.get("pretrained") and backbone.hidden % module.get("heads", 1):
        raise RecipeError(f"states: {module['heads']} heads do not divide the backbone's width of {backbone.hidden}")


def plan_collection(collection: Collection, trained_on: str) -> Plan:
    """What would be read for the training split, dev, and the test split if there is one."""
    plan = collection.parts.plan([trained_on, "dev"])
    try:
        tested = collection.parts.plan([TESTED])
    except CollectionError:  # it has no such split
        return plan
    return Plan([*plan.reads, *(line for line in tested.reads if line not in plan.reads)], [*plan.missing, *tested.missing])


def system(recipe: Recipe) -> str:
    """The pipeline that would be served, and the parts that differ while training."""
    selection = _pipeline(recipe.pipeline.model_dump())
    changed = ", ".join(f"{part} {_component(value)}" for part, value in recipe.training.items())
    while_training = f"; while training: {changed}" if changed else ""
    examples = "" if recipe.examples == "selected" else f"; trained on {recipe.examples} blocks"
    return selection + while_training + examples


def _pipeline(config: dict[str, Any]) -> str:
    parts = " > ".join(_component(config[part]) for part in ("segmenter", "selector", "aggregator"))
    return f"{parts}, {config['packing']['budget']} tokens a sequence"


def _component(description: Any) -> str:
    """A component in words, such as `bm25(k1=0.9, b=0.4)`."""
    if not isinstance(description, dict) or "name" not in description:
        return str(description)
    inner = ", ".join(f"{key}={_component(value)}" for key, value in description.items() if key != "name" and value is not None)
    return f"{description['name']}({inner})" if inner else str(description["name"])


def _backbone_lines(recipe: Recipe, backbone: Backbone | None) -> Iterator[str]:
    sizes = (
        f"{backbone.positions} positions, width {backbone.hidden}"
        if backbone
        else "to be downloaded; its positions are not checked"
    )
    yield f"backbone {recipe.backbone}: {sizes}"
    if backbone and backbone.kind not in EXPORTED and recipe.model["name"] != "ck":  # a ck uses the word vectors alone
        yield f"keyblock-export writes no bundle of a {backbone.kind}, only of {', '.join(EXPORTED)}: train and measure it"
    if recipe.states:
        yield f"learned aggregator: {_component(recipe.states)}"


def _runs(recipe: Recipe) -> list[str]:
    """The runs that the recipe names and that are missing."""
    teacher = recipe.distillation.teacher if recipe.distillation else None
    named = {"init": recipe.init, "selector_run": recipe.selector_run, "distillation.teacher": teacher}
    return [f"{run} ({key}: a run of keyblock-train)" for key, run in named.items() if run and not find_start(Path(run)).is_dir()]
