"""The head start: what stands behind the encoder learns from its states, and the encoder does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.evaluate.ranking import load_run_pipeline
from training.learn.data import Data
from training.learn.loop import TrainingError
from training.learn.objectives import RankingObjective
from training.learn.probing import probe
from training.learn.train import make_model
from training.recipe import Recipe

Built = tuple[Recipe, RankingObjective, Data]


@pytest.fixture
def build(toy: Collection, toy_run: Path, make_recipe: Callable[..., Recipe], tiny_backbone: Path) -> Callable[..., Built]:
    def built(**changes: Any) -> Built:
        recipe = make_recipe(backbone=str(tiny_backbone), precision="fp32", **changes)
        served = load_run_pipeline(toy_run)
        pipeline = Pipeline(recipe.pipeline, served.tokenizer, served.frequencies)
        data = Data.build(recipe, [toy], pipeline, toy_run / "tokenizer.json")
        return recipe, RankingObjective(recipe, data.pipeline, data.examples), data

    return built


@pytest.mark.parametrize("model", [{"name": "cross_encoder"}, {"name": "cedr_knrm", "query_tokens": 8}])
def test_known_states_lose_as_the_sequences_do(build: Callable[..., Built], model: dict[str, Any]) -> None:
    recipe, objective, data = build(model=model)
    ranker, _ = make_model(recipe, torch.device("cpu"))
    groups = data.draw(0).groups
    known = objective.frozen(ranker, groups)
    torch.testing.assert_close(objective.frozen_loss(ranker, known), objective(ranker, groups), rtol=1e-4, atol=1e-5)


def test_the_head_learns_and_the_encoder_does_not(build: Callable[..., Built]) -> None:
    recipe, objective, data = build(probe={"steps": 2, "epochs": 20, "groups": 2}, optimizer={"head_lr": 0.5})
    model, _ = make_model(recipe, torch.device("cpu"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = probe(model, objective, data.draw, recipe)
    changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"head"}
    assert len(losses) == 20
    assert losses[-1] < 0.9 * losses[0]


def test_a_model_that_learns_before_its_states_alone_is_refused(build: Callable[..., Built]) -> None:
    recipe, objective, data = build(probe={"steps": 1, "epochs": 1}, model={"name": "neural_model1", "query_tokens": 8, "width": 4})
    with pytest.raises(TrainingError, match="neural_model1 has nothing that learns behind its states; leave probe out"):
        probe(make_model(recipe, torch.device("cpu"))[0], objective, data.draw, recipe)


def test_the_draws_are_not_those_of_the_run(build: Callable[..., Built]) -> None:
    recipe, objective, data = build(probe={"steps": 2, "epochs": 1}, steps=7)
    drawn: list[int] = []
    probe(make_model(recipe, torch.device("cpu"))[0], objective, lambda step: (drawn.append(step), data.draw(step))[1], recipe)
    assert drawn == [7, 8]
