"""From a recipe to a run directory: what it holds, what is refused, and a run that was killed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from keyblock.pipeline import Pipeline
from tests.training.models.families import bag
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.data.types import CollectionError
from training.learn.tracking import read_log
from training.learn.train import train
from training.model.families import load_ranker
from training.model.starting import weights_digest
from training.recipe import Recipe, RecipeError

__all__ = ["bag"]
pytestmark = pytest.mark.usefixtures("undrawn")
ROOT = Path(__file__).resolve().parents[3]
OFTEN = "checkpoint_every=2"  # of a run that is killed often; the recipe's checkpoints are of steps 20 and 40
TORN = '{"step": 28, "ti'  # a line of the log as a kill within a write leaves it
KILLED = """
import os, signal, sys
from transformers import BertModel  # imported once, for every fork
from training.commands.train import main as train_main
from training.learn.loop import Trainer

write = Trainer._log

def train(dies_in):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = 0

    def log(trainer, **what):
        nonlocal lines
        write(trainer, **what)
        lines += 1
        die(dies_in(lines))

    Trainer._log = log
    die(dies_in(lines))
    os._exit(train_main(sys.argv[1:]))

def die(seconds):
    if seconds == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    elif seconds:  # of the processor: the moment is no other one on a busy machine, and its signal ends a process as SIGKILL does
        signal.setitimer(signal.ITIMER_PROF, seconds)

for more, seconds in ((0, 0.12), (5, 0.011), (1, 0), (8, 0.012)):  # lines of its log, and then some time
    status = train(lambda lines: seconds if lines == more else None)
    if status >= 0:
        sys.exit(f"ended by itself with status {status}")
"""
Make = Callable[..., Recipe]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoint" / "model.safetensors") | load_file(run / "checkpoint" / "head.safetensors")


def losses(run: Path) -> list[float]:
    return [r["loss"] for r in read_log(run) if "loss" in r]


@pytest.mark.timeout(400)  # it waits for a process that imports PyTorch; on a busy machine that takes its time
def test_killed_at_any_moment_again_and_again(toy_run: Path, toy_path: Path, recipe_file: Path, tmp_path: Path) -> None:
    """SIGKILL while it prepares, steps, measures or saves; the same command still ends in the weights of a run left alone."""
    run = tmp_path / "often"
    command = [str(recipe_file), "--collection", str(toy_path), "--out", str(run), "--set", OFTEN]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "KEYBLOCK_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", KILLED, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(TORN)
    assert train_main(command) == 0
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [record["step"] for record in (json.loads(line) for line in lines if line != TORN) if "loss" in record]
    again = [before - step + 1 for before, step in pairwise(steps) if step <= before]
    assert again
    assert max(again) <= 2, "steps that a kill costs"
    assert losses(run) == losses(toy_run)
    resumed, whole = weights(run), weights(toy_run)
    assert resumed.keys() == whole.keys()
    assert [name for name in whole if not torch.equal(resumed[name], whole[name])] == []


SMALL = {"steps": 2, "budgets": {80: 1.0}, "tokens_per_step": 640}


def test_a_run_that_starts_from_another(toy: Collection, toy_run: Path, tmp_path: Path, make_recipe: Make) -> None:
    """With a rate of almost nothing it stays what the other was; with another seed its own head would be another."""
    still = {"encoder_lr": 1e-12, "head_lr": 1e-12, "weight_decay": 0.0}
    recipe = make_recipe(init=str(toy_run), seed=5, optimizer=still, **SMALL)
    train(recipe, [toy], tmp_path / "run")
    mine, start = weights(tmp_path / "run"), weights(toy_run)
    for name, tensor in start.items():
        torch.testing.assert_close(mine[name], tensor, rtol=0, atol=1e-9)
    began = json.loads((tmp_path / "run" / "provenance.json").read_text(encoding="utf-8"))["starts"]
    assert began == {"init": {"path": str(toy_run), "sha256": weights_digest(toy_run)}}
    measured = {r["step"]: r["dev"]["toy"]["RR@10"] for r in read_log(tmp_path / "run") if "dev" in r}
    assert measured == {0: 1.0, 2: 1.0}, "what it begins from is measured, too"


def test_it_starts_from_the_other_runs_best_and_resumed_no_longer_needs_it(
    toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make
) -> None:
    shutil.copytree(run_copy / "checkpoint", run_copy / "best")
    (run_copy / "checkpoint" / "model.safetensors").unlink()
    recipe = make_recipe(init=str(run_copy), **SMALL)
    train(recipe, [toy], tmp_path / "run")
    shutil.rmtree(run_copy)
    train(recipe, [toy], tmp_path / "run")
    assert len(losses(tmp_path / "run")) == 2


def test_an_invalid_start(toy: Collection, backbone: Path, tmp_path: Path, make_recipe: Make, toy_run: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere: has no tokenizer\.json, so it is neither a run"):
        train(make_recipe(init=str(tmp_path / "nowhere")), [toy], tmp_path / "run")
    with pytest.raises(ValueError, match="checkpoint: cannot be read as an encoder"):
        train(make_recipe(init=str(toy_run), backbone=str(backbone)), [toy], tmp_path / "other")


def test_another_model_selects(toy: Collection, toy_run: Path, run_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    """It is copied into the run, which then stands by itself."""
    pipeline = make_recipe().pipeline.model_dump() | {"selector": {"name": "learned"}}
    recipe = make_recipe(pipeline=pipeline, selector_run=str(run_copy), **SMALL)
    train(recipe, [toy], tmp_path / "run")
    shutil.rmtree(run_copy)
    train(recipe, [toy], tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "chooser").iterdir()} == {
        path.name for path in (toy_run / "checkpoint").iterdir() if path.name not in ("state.pt", "tokenizer.json")
    }
    train(make_recipe(pipeline=pipeline, **SMALL), [toy], tmp_path / "alone")
    assert losses(tmp_path / "alone") != losses(tmp_path / "run")


def test_a_student_keeps_named_layers_of_its_teacher_and_learns_its_states(
    toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make
) -> None:
    """The teacher's second layer alone, and its head: what is left to learn is what the first layer did."""
    how = {"teacher": str(run_copy), "loss": "squared", "among": "documents", "states": 1.0}
    parts = {"reshape": {"layers": (1,)}, "init": str(run_copy), "distillation": how}
    train(make_recipe(**parts, **SMALL | {"steps": 30}), [toy], tmp_path / "run")
    found = losses(tmp_path / "run")
    assert sum(found[-5:]) < 0.9 * sum(found[:5])
    assert load_ranker(tmp_path / "run" / "checkpoint").transformer.config.num_hidden_layers == 1


def test_a_teacher_of_another_width_has_no_states_to_learn(
    toy: Collection, run_copy: Path, tmp_path: Path, tiny_backbone: Path, make_recipe: Make
) -> None:
    BertModel(BertConfig.from_pretrained(tiny_backbone, hidden_size=48)).save_pretrained(tmp_path / "wider")
    shutil.copy(tiny_backbone / "tokenizer.json", tmp_path / "wider")
    how = {"teacher": str(run_copy), "among": "documents", "states": 1.0}
    recipe = make_recipe(backbone=str(tmp_path / "wider"), distillation=how, **SMALL)
    with pytest.raises(
        RecipeError, match=r"of one width, 48 here; the teacher .* is a cross_encoder of width \d+: leave states out"
    ):
        train(recipe, [toy], tmp_path / "run")


def test_a_teacher_of_fewer_positions_is_refused(
    toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make, bag: str
) -> None:
    pipeline = make_recipe().pipeline.model_dump() | {"aggregator": {"name": "max"}}
    packing = pipeline["packing"] | {"budget_range": [32, 200]}
    recipe = make_recipe(
        model={"name": bag}, pipeline=pipeline | {"packing": packing}, distillation={"teacher": str(run_copy)}, **SMALL
    )
    with pytest.raises(RecipeError, match=r"reach 200 tokens, the teacher .* reads 128 at most"):
        train(recipe, [toy], tmp_path / "run")


@pytest.mark.parametrize("key", ["init", "selector_run", "distillation"])
def test_a_model_of_another_tokenizer_is_refused(
    toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make, key: str
) -> None:
    tokenizer = json.loads((run_copy / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"]["lowercase"] = False
    (run_copy / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    pipeline = make_recipe().pipeline.model_dump() | {"selector": {"name": "learned"}}
    named: Any = {"teacher": str(run_copy), "among": "documents"} if key == "distillation" else str(run_copy)
    with pytest.raises(ValueError, match=rf"{key}(\.teacher)? .*: its tokenizer is not that of the backbone"):
        train(make_recipe(pipeline=pipeline, **SMALL, **{key: named}), [toy], tmp_path / "run")


def test_prepared_documents_are_found_again(
    toy: Collection, tmp_path: Path, make_recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run prepares none, and draws the same."""
    recipe = make_recipe(**SMALL)
    train(recipe, [toy], tmp_path / "first", cache=tmp_path / "cache")

    def refuse(pipeline: Pipeline, texts: list[str], titles: object = None) -> None:
        raise AssertionError(f"prepared again: {texts}")

    monkeypatch.setattr(Pipeline, "prepare_documents", refuse)
    train(recipe, [toy], tmp_path / "second", cache=tmp_path / "cache")
    assert losses(tmp_path / "second") == losses(tmp_path / "first")


def test_several_collections_and_their_shares(toy: Collection, toy_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    """The second has a share of nothing: it is measured and never drawn."""
    other = Collection(toy_copy.rename(toy_copy.with_name("other")))
    small = {"steps": 2, "budgets": {80: 1.0}, "tokens_per_step": 640}
    train(make_recipe(mixture={"toy": 1, "other": 0}, **small), [toy, other], tmp_path / "both")
    train(make_recipe(mixture={"toy": 1}, **small), [toy], tmp_path / "one")
    assert list(read_log(tmp_path / "both")[-1]["dev"]) == ["toy", "other"]
    assert sorted(json.loads((tmp_path / "both" / "provenance.json").read_text(encoding="utf-8"))["collections"]) == [
        "other",
        "toy",
    ]


def test_a_mixture_must_name_the_collections_given(toy: Collection, toy_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    other = Collection(toy_copy.rename(toy_copy.with_name("other")))
    with pytest.raises(RecipeError, match=r"mixture names sea, toy, but the collections are toy; .* --set mixture=\{\}"):
        train(make_recipe(mixture={"toy": 1, "sea": 1}), [toy], tmp_path / "run")
    with pytest.raises(RecipeError, match="mixture names toy, but the collections are other, toy"):
        train(make_recipe(mixture={"toy": 1}), [toy, other], tmp_path / "run")
    with pytest.raises(CollectionError, match="one name"):
        train(make_recipe(), [toy, toy], tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["budgets", "budget_range"])
def test_budgets_beyond_the_backbones_positions(
    toy: Collection, tmp_path: Path, make_recipe: Make, recipe_tree: dict[str, Any], key: str
) -> None:
    packing = recipe_tree["pipeline"]["packing"]
    changes = (
        {"budgets": {80: 1, 129: 0.1}} if key == "budgets" else {"pipeline": {"packing": packing | {"budget_range": [32, 129]}}}
    )
    with pytest.raises(RecipeError, match=r"budgets or budget_range reach 129 tokens, .* reads 128 at most"):
        train(make_recipe(**changes), [toy], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_on_gold_passages_asks_for_them(make_recipe: Callable[..., Recipe], toy_copy: Path, tmp_path: Path) -> None:
    """Without them every block would be drawn at random, and nothing would say so."""
    (toy_copy / "spans.jsonl.gz").unlink()
    with pytest.raises(RecipeError, match="toy has no gold passages"):
        train(make_recipe(examples="gold"), [Collection(toy_copy)], tmp_path / "run")
    assert not (tmp_path / "run").exists()
