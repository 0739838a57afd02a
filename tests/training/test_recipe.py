"""Recipes: what is read, what is refused, and in which words."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from keyblock.description import PipelineConfig
from training.declarations import EncoderShape
from training.recipe import Best, Distillation, Recipe, RecipeError, load_recipe

RECIPES = Path(__file__).resolve().parents[2] / "training" / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_the_recipes_that_come_along_read_and_dump_to_themselves(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    assert Recipe.model_validate(yaml.safe_load(yaml.safe_dump(recipe.model_dump(mode="json")))) == recipe


def test_a_name_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: least\n", encoding="utf-8")
    recipe = load_recipe(path)
    assert (recipe.loss, recipe.budgets, recipe.pipeline) == ("hinge", {128: 1.0}, PipelineConfig())
    assert recipe.negatives.hard_by == {"name": "bm25", "k1": 0.9, "b": 0.4, "idf": "documents"}


def test_overrides(recipe_file: Path) -> None:
    recipe = load_recipe(
        recipe_file,
        ["optimizer.encoder_lr=1e-4", "steps=7", "mixture={a: 2, b: 1}", "pipeline.selector.name=first", "budgets={32: 1}"],
    )
    assert (recipe.optimizer.encoder_lr, recipe.steps, recipe.mixture) == (1e-4, 7, {"a": 2.0, "b": 1.0})
    assert load_recipe(RECIPES / "small" / "keyb-bm25.yaml", ["mixture={}"]).mixture == {}
    assert (recipe.pipeline.selector, recipe.budgets, recipe.optimizer.head_lr) == ({"name": "first"}, {32: 1.0}, 2e-2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1", "cannot be read as YAML"),
        (b"- a\n", "not list"),
        (b"", "not NoneType"),
        (b"name: caf\xe9", "cannot be read as YAML"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=said) as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(RecipeError, match="cannot be read as YAML"):
        load_recipe(tmp_path / "nowhere.yaml")


def test_the_longest_sequence_counts_what_is_served(make_recipe: Callable[..., Recipe], recipe_tree: dict[str, Any]) -> None:
    assert make_recipe().longest == 96
    assert make_recipe(budgets={64: 1.0, 256: 0.0}).longest == 256
    packing = recipe_tree["pipeline"]["packing"] | {"budget_range": [32, 300]}
    assert make_recipe(pipeline={"packing": packing}).longest == 300


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a recipe of these keys."""

    def recipe(file: str, **tree: Any) -> Path:
        path = tmp_path / f"{file}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")
        return path

    return recipe


def test_a_recipe_over_its_bases(write: Callable[..., Path], tmp_path: Path) -> None:
    """Key by key; what has a name is replaced whole, and what is empty empties; the later base wins; --set wins over all."""
    write("root", name="root", steps=5, seed=1, pipeline={"selector": {"name": "bm25", "k1": 2.0}, "packing": {"query_tokens": 9}})
    write("root2", base="root.yaml", mixture={"a": 1}, training={"aggregator": {"name": "max"}})
    write("middle", base="root2.yaml", seed=2, mixture={}, pipeline={"selector": {"name": "bm25"}, "packing": {"title_tokens": 3}})
    assert load_recipe(tmp_path / "middle.yaml").pipeline.selector["k1"] == 0.9, "not the base's k1"
    write("below/other", base="../root.yaml", seed=3, dropout=0.5)
    training = {"selector": {"name": "first"}}
    top = write(
        "top", base=["middle.yaml", "below/other.yaml"], name="top", pipeline={"selector": {"name": "tfidf"}}, training=training
    )
    recipe = load_recipe(top, ["steps=6"])
    assert (recipe.training, recipe.mixture) == ({"aggregator": {"name": "max"}} | training, {})
    assert recipe.training_pipeline == recipe.pipeline.model_copy(update={"selector": {"name": "first"}, "aggregator": MAX})
    assert (recipe.name, recipe.steps, recipe.seed, recipe.dropout) == ("top", 6, 3, 0.5)
    assert recipe.pipeline.selector == {"name": "tfidf"}
    assert (recipe.pipeline.packing.query_tokens, recipe.pipeline.packing.title_tokens) == (9, 3)


def test_a_recipe_over_another(write: Callable[..., Path]) -> None:
    first = write("first", name="first", negatives={"per_query": 2, "depth": 7})
    second = write("second", negatives={"depth": 8}, states=None)
    recipe = load_recipe([first, second])
    assert (recipe.name, recipe.negatives.per_query, recipe.negatives.depth) == ("first", 2, 8)


def test_invalid_bases(write: Callable[..., Path]) -> None:
    with pytest.raises(RecipeError, match=r"nowhere\.yaml: cannot be read as YAML"):
        load_recipe(write("a", name="a", base="nowhere.yaml"))
    write("one", base="two.yaml")
    with pytest.raises(RecipeError, match=r"one\.yaml: is its own base, by way of one\.yaml, two\.yaml"):
        load_recipe(write("two", base="one.yaml").with_name("one.yaml"))
    wrong = write("wrong", base=["plain.yaml"], steps=-1)
    write("plain", name="plain")
    with pytest.raises(RecipeError, match=r"plain\.yaml \+ .*wrong\.yaml: steps: "):
        load_recipe([wrong.with_name("plain.yaml"), wrong])


STATES = "pipeline.aggregator={name: states, passages: 4}"
LEARNED = "training.selector={name: learned}"
MAX = {"name": "max", "passages": 0}
TEACHER = "teacher: runs/other"
ONE = "training.aggregator={name: max, passages: 1}"
STATIC = "pipeline.encoder={name: static, file: table.npz}"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["steps"], "--set steps: write key=value"),
        (["steps=many"], "steps: Input should be a valid integer"),
        (["steps.more=1"], "steps is a value, it has no keys"),
        (["steps=[1"], "the value is not YAML"),
        (["loss=best"], "unknown loss 'best'; known: hinge, listwise, logistic"),
        (["budgets={96: 0, 128: 0}"], "every share is 0"),
        (["budgets={96: -1, 128: 2}"], "budgets.96: Input should be greater than or equal to 0"),
        (["budgets={15: 1}"], "15 has no room for a block beside 8 query tokens"),
        (["mixture={a: 0, b: 0}"], "mixture: Value error, every share is 0"),
        (["mixture={a: .inf}"], "mixture.a: Input should be a finite number"),
        (["negatives.hard_by={name: best}"], "unknown selector 'best'"),
        (["pipeline.selector={name: bm52}"], "unknown selector 'bm52'"),
        (["pipeline.packing.budget=999"], "budget 999 lies outside budget_range 32 to 96"),
        ([STATES], "pipeline.aggregator 'states' needs a learned module: name one in the recipe's states"),
        (
            ["pipeline.aggregator.name=states", "states.name=transformer"],
            "a transformer over all passages takes memory with their square",
        ),
        (["states.name=cnn"], "states 'cnn' is learned: it needs pipeline.aggregator 'states'"),
        ([STATES, "states.name=best"], "states: Value error, unknown learned aggregator 'best'"),
        ([STATES, "states.name=cnn", ONE], "must both be 'states', or neither: one model does both"),
        (["training.aggregator.name=states"], "must both be 'states', or neither: one model does both"),
        (["examples=segments"], "training.selector must be learned"),
        (["selector_run=runs/other"], "selector_run 'runs/other' has nothing to select: no selector is learned"),
        (["best={}"], "best trains on the segment a ranker chooses: training.selector learned, training.aggregator max of 1"),
        (["best={}", LEARNED], "training.aggregator max of 1"),
        (["best={}", LEARNED, "training.aggregator={name: max, passages: 2}"], "training.aggregator max of 1"),
        (["best={}", LEARNED, ONE, "examples=gold"], "best chooses what is trained on itself: leave examples 'gold' out"),
        (["best={}", LEARNED, ONE, "selector_run=runs/other"], "best selects by the iteration before: leave selector_run out"),
        (["best={}", LEARNED, ONE, "probe={}"], "best trains each ranker at once: leave probe out"),
        (["probe={}", "steps=0", "init=runs/other"], "steps 0 trains nothing: leave probe out"),
        (["examples=shown", "pipeline.aggregator.name=max"], "examples 'shown' adds to one sequence of chosen blocks"),
        ([f"distillation={{{TEACHER}, best: 128}}"], "distillation.best: Input should be less than or equal to 64"),  # 2^128: inf
        ([f"distillation={{{TEACHER}, loss: hinge}}"], "unknown loss 'hinge'; known: lambda, margin, softmax"),
        ([f"distillation={{{TEACHER}}}"], "distillation among passages compares a document's sequences, and 'joint' makes one"),
        ([f"distillation={{{TEACHER}, among: documents}}", "pointwise=0.1"], "distillation learns from its teacher alone"),
        (
            [f"distillation={{{TEACHER}, states: 1}}", "model.name=ck", "training.aggregator={name: max}"],
            "model is a ck: leave states out",
        ),
        (["model.name=classifier", "reshape.layers=1"], "a classifier reads its backbone as it is: leave reshape out"),
        (["steps=0"], "steps 0 trains nothing: name the run or bundle that it is made of in init"),
        (["training={selector: {name: splade}}"], "training.selector: Value error, unknown selector 'splade'"),
        (["training={retriever: bm25}"], "retriever"),
        (["training.packing.budget=999"], "budget 999 lies outside budget_range"),
        (
            ["pipeline.selector.name=hybrid"],
            "selector 'hybrid' compares vectors: name an encoder that makes them (one of: sentence",
        ),
        ([STATIC, "training.encoder={name: static, file: other.npz}"], "training.encoder makes other vectors than are served"),
        (
            [STATIC, "pipeline.aggregator={name: max}", "pipeline.packing={title_tokens: 0}", "pipeline.cosine_scale=20"],
            "cosine_scale is a bundle's",
        ),
        (["negatives.hard_by.name=vectors"], "negatives.hard_by 'vectors' compares vectors: name pipeline.encoder, too"),
        ([STATIC, "training.encoder=null", "negatives.hard_by.name=hybrid"], "negatives.hard_by 'hybrid' compares vectors"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(recipe_file: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe_file, overrides)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500, "not the whole recipe again"


def test_parts_that_do_fit(recipe_file: Path) -> None:
    taught = load_recipe(recipe_file, [f"distillation={{{TEACHER}}}", "training.aggregator={name: max}"])
    assert taught.distillation == Distillation(teacher="runs/other", loss="lambda", among="passages", best=4)
    assert load_recipe(recipe_file, ["steps=0", "init=runs/other"]).steps == 0
    assert load_recipe(recipe_file, ["reshape.layers=1"]).reshape == EncoderShape(layers=1)
    best = load_recipe(recipe_file, ["best={}", LEARNED, ONE])
    assert (best.best, best.training_pipeline.aggregator) == (Best(), {"name": "max", "passages": 1})
    parade = load_recipe(recipe_file, [STATES, "states.name=cnn", LEARNED, "selector_run=runs/other"])
    assert parade.states == {"name": "cnn", "layers": 4}, "written out with its parameters"
    hybrid = load_recipe(recipe_file, [STATIC, "pipeline.selector.name=hybrid", "negatives.hard_by.name=vectors"])
    assert hybrid.training_pipeline.encoder == {"name": "static", "file": "table.npz"}
    plain = load_recipe(recipe_file, [STATIC, "training={encoder: null, selector: {name: bm25}}"])
    assert (plain.pipeline.encoder is None, plain.training_pipeline.encoder) == (False, None)


def test_a_base_read_twice_is_no_circle(write: Callable[..., Path]) -> None:
    write("same", name="same", steps=5)
    write("left", base="same.yaml")
    write("right", base="same.yaml")
    assert load_recipe(write("both", base=["left.yaml", "right.yaml"])).steps == 5
    with pytest.raises(RecipeError, match=r"self\.yaml: is its own base"):
        load_recipe(write("self", base="self.yaml"))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("step=5", "steps"),
        ("encoder_lr=1", "optimizer.encoder_lr"),
        ("optimizer.encoder_rl=1", "optimizer.encoder_lr"),
        ("negatives.perquery=1", "negatives.per_query"),
        ("pipeline.packing.bugdet=1", "pipeline.packing.budget"),
    ],
)
def test_a_wrong_key_suggests_the_right_one(recipe_file: Path, wrong: str, right: str) -> None:
    with pytest.raises(RecipeError, match=rf"; did you mean {re.escape(right)}\?$"):
        load_recipe(recipe_file, [wrong])
