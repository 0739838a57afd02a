"""The sentence-level paper's system from recipe to ranking: the encoder as it comes, then tuned on the sentences that it chose."""

from pathlib import Path
from typing import Any

import torch
import yaml

from training.commands.train import main as train_main
from training.data.collection import Collection
from training.evaluate.ranking import run_ranker
from training.learn.tracking import read_log
from training.model.bi_encoder import BiEncoder
from training.model.families import load_ranker, new_ranker
from training.recipe import load_recipe

SMALL = Path(__file__).parents[1] / "recipes" / "small"


def train(name: str, recipe_tree: dict[str, Any], toy_path: Path, folder: Path, *changes: str) -> Path:
    """A run of a small recipe on the toy, with its backbone, of a few steps."""
    recipe = load_recipe(SMALL / f"{name}.yaml", ["mixture={}"]).model_dump(mode="json")
    few = {"dev_queries": 4, "dev_depth": 4, "queries_per_step": 2, "precision": "fp32"}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe | few | {"backbone": recipe_tree["backbone"]}), encoding="utf-8")
    settings = [word for change in changes for word in ("--set", change)]
    assert train_main([str(path), "--collection", str(toy_path), "--out", str(folder / name), *settings]) == 0
    return folder / name


def test_the_encoder_as_it_comes_chooses_what_it_is_tuned_on(
    recipe_tree: dict[str, Any], toy_path: Path, toy: Collection, tmp_path: Path
) -> None:
    plain = train("sentence-encoder", recipe_tree, toy_path, tmp_path)
    few = ("steps=3", "evaluate_every=3", "checkpoint_every=3", "negatives.per_query=2", "optimizer.encoder_lr=1e-3")
    tuned = train("sentence-tuned", recipe_tree, toy_path, tmp_path, f"selector_run={plain}", *few)
    assert len([record for record in read_log(tuned) if "loss" in record]) == 3
    query, candidates = toy.split("dev")[0], list(toy.documents)[:5]
    scores = [run_ranker(run, toy, bf16=False).rerank(query, candidates).scores for run in (plain, tuned)]
    assert all(len(found) == len(candidates) for found in scores)
    assert scores[0] != scores[1]
    model = load_ranker(plain / "checkpoint")
    assert isinstance(model, BiEncoder)
    as_it_came = new_ranker(model.family, recipe_tree["backbone"]).state_dict()
    torch.testing.assert_close(model.state_dict(), as_it_came, atol=1e-6, rtol=0)
