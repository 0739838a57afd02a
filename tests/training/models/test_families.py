"""Families beside the cross-encoder, through the commands that train and measure."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.checkpoints import save_checkpoint
from tests.training.models.families import Bag, bag
from training.data.collection import Collection
from training.declarations import CrossEncoderFamily
from training.evaluate.ranking import run_ranker
from training.learn.tracking import read_log
from training.learn.train import train
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker, new_ranker
from training.model.ranker_module import FAMILY_FILE
from training.recipe import Recipe, load_recipe

__all__ = ["bag"]


def test_another_family_is_trained_measured_and_read_back(
    bag: str, make_recipe: Callable[..., Recipe], toy: Collection, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(make_recipe(model={"name": bag, "width": 6}, steps=2, evaluate_every=2, checkpoint_every=1), [toy], run)
    losses = [record["loss"] for record in read_log(run) if "loss" in record]
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))
    model = load_ranker(run / "checkpoint")
    assert isinstance(model, Bag)
    assert model.hidden_size == 6
    assert load_recipe(run / "recipe.yaml").model == {"name": "bag", "width": 6}
    query = toy.split("dev")[0]
    candidates = list(toy.documents)[:5]
    ranked = run_ranker(run, toy, bf16=False).rerank(query, candidates)
    assert sorted(ranked.scores) == sorted(candidates)
    assert len(set(ranked.scores.values())) == 5


@pytest.mark.parametrize(
    "family", [{"name": "classifier"}, {"name": "bi_encoder", "scale": 20.0}], ids=lambda family: family["name"]
)
def test_a_ranker_is_saved_read_back_and_started_from(family: dict[str, Any], tmp_path: Path) -> None:
    one, other, third = (
        new_ranker(family, str(save_checkpoint("bert", tmp_path / name, intermediate_size=size)))
        for name, size in (("one", 48), ("other", 48), ("third", 64))
    )
    one.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / FAMILY_FILE).read_text(encoding="utf-8")) == family
    again = load_ranker(tmp_path / "saved")
    assert (type(again), again.family, again.training) == (type(one), family, False)
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    other.start_from(tmp_path / "saved")
    for same in (again, other):
        torch.testing.assert_close(same.state_dict(), one.state_dict())
    with pytest.raises(ValueError, match="cannot be read as an encoder"):
        third.start_from(tmp_path / "saved")


def test_a_checkpoint_without_a_family_is_a_cross_encoders(tiny_backbone: Path, tmp_path: Path) -> None:
    """As they were written before there were families."""
    tmp_path = tmp_path / "not yet" / "there"
    CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path)
    assert json.loads((tmp_path / FAMILY_FILE).read_text(encoding="utf-8")) == CrossEncoderFamily().describe()
    (tmp_path / FAMILY_FILE).unlink()
    assert isinstance(load_ranker(tmp_path), CrossEncoder)


@pytest.mark.parametrize(
    ("family", "problem"),
    [
        ({"name": "bert"}, "unknown ranker family 'bert'; known: bag, .*classifier, cross_encoder"),
        ({"name": "bag", "depth": 3}, "bag: depth: Extra inputs are not permitted"),
    ],
)
def test_what_is_no_family_is_refused(
    bag: str, make_recipe: Callable[..., Recipe], tmp_path: Path, family: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        make_recipe(model=family)
    (tmp_path / FAMILY_FILE).write_text(json.dumps(family), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{tmp_path / FAMILY_FILE}: {problem}"):
        load_ranker(tmp_path)


@pytest.mark.parametrize("content", ["", "[1, 2]", "null"])
def test_a_damaged_family_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FAMILY_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{tmp_path / FAMILY_FILE}: "):
        load_ranker(tmp_path)
