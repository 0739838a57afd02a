"""The training loop: it learns, accumulates, stops at nonsense, and logs."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from keyblock.pipeline import Pipeline
from training.checkpoints import latest
from training.collection import Collection
from training.curves import read_log
from training.dev import DevSet
from training.first_stage import complete_run
from training.loop import Trainer, TrainingError, learning_rate_factor, make_optimizer
from training.losses import LOSSES
from training.model import CrossEncoder
from training.recipe import Optimizer, Recipe
from training.sampling import Preparation, Source

Make = Callable[..., Trainer]


@pytest.fixture(scope="module")
def preparation(toy: Collection, toy_pipeline: Pipeline) -> Preparation:
    return Preparation(toy, toy_pipeline)


@pytest.fixture(scope="module")
def source(preparation: Preparation, toy: Collection) -> Source:
    return Source.build(preparation, "train", complete_run(toy, "train", 4), 4)


@pytest.fixture
def trainer(
    tmp_path_factory: pytest.TempPathFactory,
    make_recipe: Callable[..., Recipe],
    preparation: Preparation,
    source: Source,
    toy_run: Path,
) -> Make:
    """Makes a trainer in a directory of its own, from the same random weights each time."""

    def make(**changes: Any) -> Trainer:
        recipe = make_recipe(**{"steps": 2, "evaluate_every": 100, "checkpoint_every": 100} | changes)
        run = tmp_path_factory.mktemp("run")
        (run / "tokenizer.json").write_bytes((toy_run / "tokenizer.json").read_bytes())
        torch.manual_seed(0)
        model = CrossEncoder.from_backbone(recipe.backbone)
        dev = DevSet.build({"toy": preparation}, recipe)
        return Trainer(recipe, model, preparation.pipeline, {"toy": source}, dev, run)

    return make


def weights(trainer: Trainer) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def moments(trainer: Trainer) -> Tensor:
    """Adam's first moments after one step: a tenth of the gradient."""
    return torch.cat([trainer.optimizer.state[p]["exp_avg"].flatten() for p in trainer.model.parameters()])


def test_the_loss_falls_and_the_order_gets_right(toy_run: Path) -> None:
    """Four documents a group: ln 4 before anything is learned. The first stage ranks the answer last of four."""
    losses = [r["loss"] for r in read_log(toy_run) if "loss" in r]
    assert len(losses) == 40
    assert losses[0] == pytest.approx(math.log(4), abs=0.02)
    assert max(losses[-5:]) < 0.1
    assert [r["dev"]["toy"]["RR@10"] for r in read_log(toy_run) if "dev" in r][-1] >= 0.9


def test_what_is_logged(toy_run: Path) -> None:
    lines = [json.loads(line) for line in (toy_run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [r["step"] for r in lines if "loss" in r] == list(range(1, 41))
    assert [r["step"] for r in lines if "dev" in r] == [20, 40]
    assert {r["budget"] for r in lines if "loss" in r} == {80, 96}
    assert all(r["sequences"] == 4 * (1024 // (r["budget"] * 4)) and r["seconds"] > 0 for r in lines if "loss" in r)


@pytest.mark.parametrize("loss", ["listwise", "hinge"])
@pytest.mark.parametrize("micro_tokens", [64, 1600])  # one group of the six at once; five of them, then the last
def test_accumulated_slices_update_like_one_batch(trainer: Make, loss: str, micro_tokens: int) -> None:
    step = {"steps": 1, "budgets": {80: 1.0}, "tokens_per_step": 1920, "loss": loss}
    whole, sliced = trainer(**step, micro_tokens=1920), trainer(**step, micro_tokens=micro_tokens)
    before = weights(whole)
    whole.train()
    sliced.train()
    gradient, other = (moments(t) for t in (whole, sliced))
    assert gradient.abs().max() > 1e-5
    torch.testing.assert_close(other, gradient, rtol=1e-3, atol=1e-8)
    clear = gradient.abs() > 1e-6  # Adam's first step is the gradient's sign: where that is noise, so is the step
    assert (weights(whole) - before)[clear].abs().min() > 1e-4
    torch.testing.assert_close(weights(sliced)[clear], weights(whole)[clear], rtol=0, atol=1e-5)
    assert [r["loss"] for r in read_log(whole.run)[:1]] == pytest.approx([r["loss"] for r in read_log(sliced.run)[:1]])


def test_bf16_computes_low_and_keeps_weights_high(trainer: Make) -> None:
    low, high = trainer(precision="bf16"), trainer(precision="fp32")
    low.train()
    high.train()
    assert {p.dtype for p in low.model.parameters()} == {torch.float32}
    assert not torch.equal(weights(low), weights(high))
    losses = [[r["loss"] for r in read_log(t.run) if "loss" in r] for t in (low, high)]
    assert losses[0] == pytest.approx(losses[1], abs=0.05)


def test_a_loss_that_is_not_a_number_stops_before_it_is_saved(trainer: Make) -> None:
    broken = trainer()
    torch.nn.init.constant_(broken.model.head.weight, math.inf)
    with pytest.raises(TrainingError, match=r"step 0: the loss is (nan|inf).*lower optimizer.encoder_lr or use precision: fp32"):
        broken.train()
    assert not (broken.run / "checkpoint").exists()


def test_a_gradient_that_is_not_a_number_stops_too(trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "odd", lambda scores: (scores - scores).abs().sqrt().sum() + 1)
    broken = trainer(loss="odd")
    before = weights(broken)
    with pytest.raises(TrainingError, match=r"the loss is 1.0, its gradient's norm nan"):
        broken.train()
    assert torch.equal(weights(broken), before)


def test_what_goes_wrong_while_drawing_reaches_the_caller(trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = trainer()
    for query in broken.sources["toy"].queries:
        monkeypatch.setitem(broken.sources["toy"].relevant, query, ["sea-0"])
    with pytest.raises(ValueError, match="names document 'sea-0'"):
        broken.train()


def test_a_finished_run_stays_as_it_is(trainer: Make) -> None:
    done = trainer()
    done.train()
    again = Trainer(done.recipe, done.model, done.pipeline, done.sources, done.dev, done.run)
    log, saved = (done.run / "log.jsonl").read_bytes(), (latest(done.run) / "model.safetensors").stat().st_mtime_ns
    assert again.step == done.recipe.steps
    again.train()
    assert (done.run / "log.jsonl").read_bytes() == log
    assert (latest(done.run) / "model.safetensors").stat().st_mtime_ns == saved


def test_the_learning_rate_by_hand() -> None:
    """Ten steps, a fifth of them warm-up: up in two, then down in eight to zero."""
    factors = [learning_rate_factor(step, 10, 0.2) for step in range(11)]
    assert factors == pytest.approx([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0])


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
@pytest.mark.parametrize("warmup", [0.0, 0.1, 1.0])
def test_the_learning_rate_rises_falls_and_is_never_zero_before_the_end(steps: int, warmup: float) -> None:
    factors = [learning_rate_factor(step, steps, warmup) for step in range(steps)]
    peak = factors.index(1.0)
    assert all(0 < factor <= 1 for factor in factors)
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert learning_rate_factor(steps, steps, warmup) == 0


def test_every_weight_is_in_one_group_and_norms_are_not_decayed(tiny_backbone: Path) -> None:
    model = CrossEncoder.from_backbone(str(tiny_backbone))
    groups = make_optimizer(model, Optimizer(encoder_lr=1e-5, head_lr=1e-3, weight_decay=0.5)).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(names[id(p)] for group in groups for p in group["params"]) == sorted(names.values())
    assert {group["lr"] for group in groups[:2]} == {1e-5}
    assert ([names[id(p)] for p in groups[2]["params"]], groups[2]["lr"]) == (["head.weight", "head.bias"], 1e-3)
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert decayed
    assert not any("LayerNorm" in name or name.endswith("bias") for name in decayed)
