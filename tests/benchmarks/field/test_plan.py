"""Every system of the field has a recipe that can be read, and all of them have the same budget."""

import pytest

from benchmarks.field.plan import RECIPES, REFERENCES, SETTINGS, STAGES, START, SYSTEMS, stage, system
from benchmarks.field.tables import FINDINGS
from training.declarations import FAMILIES
from training.recipe import load_recipe

TOKENS = 5 * 256


@pytest.mark.parametrize("name", [one.recipe for one in SYSTEMS])
def test_no_system_reads_more_than_the_others(name: str) -> None:
    recipe, start = load_recipe(RECIPES / f"{name}.yaml"), load_recipe(RECIPES / f"{START}.yaml")
    sequences = recipe.pipeline.aggregator.get("passages", 1)
    assert recipe.pipeline.packing.budget * sequences <= TOKENS
    assert recipe.longest * sequences <= TOKENS
    if FAMILIES.create(recipe.model).reshapes:
        assert recipe.reshape
        assert start.reshape
        assert recipe.reshape.layers == start.reshape.layers
    assert recipe.name == name


def test_names_are_those_of_systems_and_stages() -> None:
    assert {setting.stage for setting in SETTINGS} == {one.name for one in STAGES}
    assert all(one.after is None or stage(one.after) in STAGES for one in STAGES)
    for name in (*REFERENCES, *(name for pair in FINDINGS for name in pair)):
        assert system(name).recipe == name
