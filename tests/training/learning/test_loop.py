"""The training loop: it learns, accumulates, stops in time and at nonsense, logs, and is one loop for several processes."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.data.collection import Collection
from training.data.sampling import Group, StepBatch
from training.evaluate.ranking import load_run_pipeline
from training.learn import loop
from training.learn.data import Data
from training.learn.loop import Trainer, TrainingError, make_optimizer, micro_batches
from training.learn.objectives import LOSSES, RankingObjective
from training.learn.tracking import read_log
from training.learn.train import make_model
from training.model.checkpoints import chosen, latest
from training.model.cross_encoder import CrossEncoder
from training.recipe import Optimizer, Recipe

pytestmark = pytest.mark.usefixtures("undrawn")
Make = Callable[..., Trainer]


@pytest.fixture
def trainer(tmp_path_factory: pytest.TempPathFactory, make_recipe: Callable[..., Recipe], toy: Collection, toy_run: Path) -> Make:
    """Makes a trainer in a directory of its own, or in `run`, from the same random weights each time."""
    pipeline = load_run_pipeline(toy_run)

    def make(run: Path | None = None, **changes: Any) -> Trainer:
        recipe = make_recipe(**{"steps": 2, "evaluate_every": 100, "checkpoint_every": 100} | changes)
        run = run or tmp_path_factory.mktemp("run")
        (run / "tokenizer.json").write_bytes((toy_run / "tokenizer.json").read_bytes())
        torch.manual_seed(0)
        model, _ = make_model(recipe, torch.device("cpu"))
        data = Data.build(recipe, [toy], pipeline, run / "tokenizer.json")
        return Trainer(recipe, model, RankingObjective(recipe, data.pipeline, data.examples), data.draw, data.dev, run)

    return make


def weights_of(model: CrossEncoder) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def weights(trainer: Trainer) -> Tensor:
    return weights_of(trainer.model)


def moments(trainer: Trainer) -> Tensor:
    """Adam's first moments after one step: a tenth of the gradient."""
    return torch.cat([trainer.optimizer.state[p]["exp_avg"].flatten() for p in trainer.model.parameters()])


def test_what_is_logged_as_the_loss_falls_and_the_order_gets_right(toy_run: Path) -> None:
    """Four documents a group: ln 4 before anything is learned. The first stage ranks the answer last of four."""
    lines = [json.loads(line) for line in (toy_run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    steps, measured = [line for line in lines if "loss" in line], [line for line in lines if "dev" in line]
    assert [r["step"] for r in steps] == list(range(1, 41))
    assert steps[0]["loss"] == pytest.approx(math.log(4), abs=0.02)
    assert max(r["loss"] for r in steps[-5:]) < 0.1
    assert {r["budget"] for r in steps} == {80, 96}
    assert all(r["pairs"] == 4 * (1024 // (r["budget"] * 4)) for r in steps)
    assert all(r["tokens"] == r["pairs"] * r["budget"] and r["seconds"] > 0 for r in steps)
    assert all(round(r["seconds"], 4) == r["seconds"] for r in steps), "to a tenth of a millisecond"
    assert [r["step"] for r in measured] == [20, 40]
    assert measured[-1]["dev"]["toy"]["RR@10"] >= 0.9
    assert all(r["pairs_per_second"] > 0 and r["tokens_per_second"] > 0 and r["peak_memory_mb"] > 50 for r in measured)


def test_a_finished_run_says_so_and_stays_as_it_is(trainer: Make, capsys: pytest.CaptureFixture[str]) -> None:
    done = trainer()
    done.train()
    said = capsys.readouterr().err
    assert re.search(r"toy: 100%.* 2/2 \[.*budget=\d+, loss=\d\.\d{3}\]", said.replace("\r", "\n")), "the bar"
    *_, last = said.splitlines()
    assert re.fullmatch(r"toy: 2 steps in \d+ s: [\d,.]+ pairs/s, [\d,]+ tokens/s, peak memory [\d,]+ MB", last)
    again = trainer(done.run)
    log, saved = (done.run / "log.jsonl").read_bytes(), (latest(done.run) / "model.safetensors").stat().st_mtime_ns
    assert again.step == done.recipe.steps
    again.train()
    assert (done.run / "log.jsonl").read_bytes() == log
    assert (latest(done.run) / "model.safetensors").stat().st_mtime_ns == saved
    assert " steps in " not in capsys.readouterr().err


def test_dev_is_measured_and_the_curves_are_drawn_at_the_end(trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    for every, measured in ((100, [3]), (1, [1, 2, 3])):
        run = trainer(steps=3, evaluate_every=every)
        monkeypatch.setattr(loop, "draw_curves", lambda _, run=run: drawn.append(run.step))
        run.train()
        assert [r["step"] for r in read_log(run.run) if "dev" in r] == measured
    assert drawn == [3, 1, 2, 3]


@pytest.mark.parametrize("micro_tokens", [64, 1600])  # one group of the six at once; five of them, then the last
def test_accumulated_slices_update_like_one_batch(trainer: Make, micro_tokens: int) -> None:
    step = {"steps": 1, "budgets": {80: 1.0}, "tokens_per_step": 1920}
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


def test_a_gradient_longer_than_clip_is_cut_to_it(trainer: Make, recipe_tree: dict[str, Any]) -> None:
    """Its direction stays. A shorter one is left alone."""
    rates = recipe_tree["optimizer"]
    long, short = (trainer(steps=1, optimizer=rates | {"clip": clip}) for clip in (1e-3, 1e3))
    long.train()
    short.train()
    whole, cut = 10 * moments(short), 10 * moments(long)
    assert whole.norm() > 5e-3
    torch.testing.assert_close(cut, whole * (1e-3 / whole.norm()), rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ({"warmup": 0.5, "decay": "linear"}, [0.5, 1.0, 1.0, 0.5]),
        ({"warmup": 0.5, "decay": "none"}, [0.5, 1.0, 1.0, 1.0]),
        ({"warmup": 0.0, "decay": "linear"}, [1.0, 1.0, 2 / 3, 1 / 3]),
    ],
)
def test_each_step_has_the_rate_of_the_schedule(
    trainer: Make, recipe_tree: dict[str, Any], schedule: dict[str, Any], factors: list[float]
) -> None:
    """Four steps, for the encoder's rate and the head's."""
    trained, rates = trainer(steps=4, optimizer=recipe_tree["optimizer"] | schedule), []
    trained.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append([of["lr"] for of in optimizer.param_groups]))
    trained.train()
    assert rates == [pytest.approx([2e-3 * factor, 2e-3 * factor, 2e-2 * factor]) for factor in factors]


@dataclass
class Linear:
    """A loss whose gradient is known: theta 1's head gets a norm of 1, theta 0's one of `loudness`."""

    selector: CrossEncoder
    loudness: float

    def __call__(self, model: CrossEncoder, groups: Sequence[Group]) -> Tensor:
        return model.head.bias.sum() + self.loudness * self.selector.head.bias.sum()

    def cost(self, group: Group) -> int:
        return group.tokens


def test_a_loud_ranker_does_not_quieten_its_twin(trainer: Make) -> None:
    """One norm of both would have left theta 1 a gradient of 1 / 300 (BeST trains each by its own loss)."""
    plain = trainer(steps=1)
    selector, _ = make_model(plain.recipe, plain.device)
    both = Trainer(plain.recipe, plain.model, Linear(selector, 300.0), plain.draw, plain.dev, plain.run, selector=selector)
    both.train()
    clipped = [both.optimizer.state[model.head.bias]["exp_avg"].item() * 10 for model in (plain.model, selector)]
    assert clipped == pytest.approx([1.0, 1.0], rel=1e-4)


def test_a_gradient_that_is_not_a_number_stops_too(trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "hinge", lambda scores: (scores - scores).abs().sqrt().sum() + 1)
    broken = trainer(loss="hinge")
    before = weights(broken)
    with pytest.raises(TrainingError, match=r"the loss is 1.0, its gradient's norm nan"):
        broken.train()
    assert torch.equal(weights(broken), before)


def test_what_goes_wrong_while_drawing_reaches_the_caller(trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = trainer()
    source = broken.draw.__self__.sources["toy"]
    for query in source.queries:
        monkeypatch.setitem(source.relevant, query, ["sea-0"])
    with pytest.raises(ValueError, match="names document 'sea-0'"):
        broken.train()


def test_recomputed_activations_give_the_same_update(trainer: Make) -> None:
    plain, checkpointed = trainer(steps=1), trainer(steps=1, gradient_checkpointing=True)
    calls = []
    for each in (plain, checkpointed):
        each.model.encoder.encoder.layer[0].attention.register_forward_hook(lambda *_, who=each.run: calls.append(who))
        each.train()
    assert calls.count(checkpointed.run) > calls.count(plain.run) > 0
    assert torch.equal(moments(checkpointed), moments(plain))
    assert torch.equal(weights(checkpointed), weights(plain))


def test_dropout_goes_on_where_it_stopped(trainer: Make) -> None:
    """The masks of a step are those of a run that was not interrupted, whatever was measured between."""
    whole, stopped = (trainer(steps=4, dropout=0.2, checkpoint_every=2, evaluate_every=every) for every in (100, 1))
    whole.train()
    draw = stopped.draw

    def die(step: int) -> StepBatch:
        if step == 3:
            raise KeyboardInterrupt
        return draw(step)

    stopped.draw = die
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    resumed = trainer(stopped.run, steps=4, dropout=0.2)
    assert (stopped.step, resumed.step) == (3, 2)
    resumed.train()
    assert torch.equal(weights(resumed), weights(whole))
    undropped = trainer(steps=4)
    undropped.train()
    assert not torch.equal(weights(undropped), weights(whole))


@dataclass
class Grader:
    """A dev set whose measurements are given."""

    values: Sequence[float]
    taken: int = 0

    def measure(self, model: CrossEncoder) -> Mapping[str, Mapping[str, float]]:
        self.taken += 1
        value = self.values[self.taken - 1]
        return {"toy": {"RR@10": value}, "other": {"RR@10": 0.5}}


def graded(trainer: Trainer, values: Sequence[float]) -> Trainer:
    trainer.dev = Grader(values)  # type: ignore[assignment]
    return trainer


def test_it_stops_early_and_keeps_the_best(trainer: Make) -> None:
    """Measured each step; the second is the best, and two without a better one follow, one of them equal."""
    settings = {"steps": 9, "evaluate_every": 1, "checkpoint_every": 1, "patience": 2}
    stopped = graded(trainer(**settings), [0.3, 0.6, 0.6, 0.4, 0.9])
    stopped.train()
    assert stopped.step == 4
    two = graded(trainer(steps=9, evaluate_every=2), [])
    with pytest.raises(IndexError):  # dies when it is measured, after two steps
        two.train()
    assert chosen(stopped.run) == stopped.run / "best"
    assert torch.equal(weights_of(CrossEncoder.load(chosen(stopped.run))), weights(two))
    again = graded(trainer(stopped.run, **settings), [1.0])
    again.train()  # stopped is stopped, also for the same command
    assert (again.step, again.dev.taken) == (4, 0)


def test_a_resumed_run_remembers_its_best(trainer: Make) -> None:
    settings = {"steps": 9, "evaluate_every": 1, "checkpoint_every": 1, "patience": 2}
    first = graded(trainer(**settings), [0.6, 0.5])
    with pytest.raises(IndexError):  # dies while it measures the third time
        first.train()
    second = graded(trainer(first.run, **settings), [0.55, 0.9])
    assert (second.step, second.stopping.best, second.stopping.stale) == (2, pytest.approx(0.55), 1)
    second.train()
    assert second.step == 3


@pytest.mark.parametrize(
    ("measured", "said", "trained"),
    [
        (
            [0.6, 0.4, 0.5],
            "0.5500 before training, 0.5000 after step 2: no better than models/default, whose weights it keeps",
            False,
        ),
        ([0.6, 0.5, 0.6], "0.5500 before training, 0.5500 after step 2: no better than models/default", True),
        ([0.6, 0.4, 0.7], "0.5500 before training, 0.6000 after step 2", True),
    ],
)
def test_what_training_began_from_stays_where_it_is_better(
    trainer: Make, capsys: pytest.CaptureFixture[str], measured: list[float], said: str, trained: bool
) -> None:
    run = graded(trainer(steps=2, evaluate_every=1, patience=3), measured)
    run.recipe = run.recipe.model_copy(update={"init": "models/default"})
    before = weights(run).clone()
    run.train()
    assert f"RR@10 on dev: {said}\n" in capsys.readouterr().err
    assert torch.equal(weights_of(CrossEncoder.load(chosen(run.run))), weights(run) if trained else before)


def test_without_patience_nothing_stops_and_no_best_is_kept(trainer: Make) -> None:
    run = graded(trainer(steps=5, evaluate_every=1), [0.6, 0.5, 0.4, 0.3, 0.2])
    run.train()
    assert run.step == 5
    assert chosen(run.run) == run.run / "checkpoint"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(1, [[3], [5], [2], [9], [1]]), (8, [[3, 5], [2], [9], [1]]), (10, [[3, 5, 2], [9, 1]]), (99, [[3, 5, 2, 9, 1]])],
)
def test_micro_batches(tokens: int, expected: list[list[int]]) -> None:
    groups = [Group("q", ("d",), [], cost) for cost in (3, 5, 2, 9, 1)]
    assert [[g.tokens for g in part] for part in micro_batches(groups, lambda g: g.tokens, tokens)] == expected
    assert list(micro_batches([], lambda g: g.tokens, tokens)) == []


def test_every_weight_is_in_one_group_and_norms_are_not_decayed(tiny_backbone: Path) -> None:
    model = CrossEncoder.from_backbone(str(tiny_backbone))
    groups = make_optimizer(Optimizer(encoder_lr=1e-5, head_lr=1e-3, weight_decay=0.5), model).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(names[id(p)] for group in groups for p in group["params"]) == sorted(names.values())
    assert {group["lr"] for group in groups[:2]} == {1e-5}
    assert ([names[id(p)] for p in groups[2]["params"]], groups[2]["lr"]) == (["head.weight", "head.bias"], 1e-3)
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert decayed
    assert not any("LayerNorm" in name or name.endswith("bias") for name in decayed)


@pytest.mark.parametrize("pretrained", [False, True])
def test_pretrained_layers_of_an_aggregator_learn_as_the_encoder_does(tiny_backbone: Path, pretrained: bool) -> None:
    """At the rate of a fresh head they would forget what they know."""
    module: dict[str, Any] = {"name": "transformer", "heads": 2, "pretrained": str(tiny_backbone) if pretrained else None}
    model = CrossEncoder.from_backbone(str(tiny_backbone), aggregator=module)
    groups = make_optimizer(Optimizer(encoder_lr=1e-5, head_lr=1e-3), model).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert rates.keys() == {id(p) for p in model.parameters()}
    assert model.aggregator is not None
    assert {rates[id(p)] for p in model.aggregator.layers.parameters()} == {1e-5 if pretrained else 1e-3}  # type: ignore[operator, union-attr]
    assert {rates[id(p)] for p in (model.aggregator.cls, *model.head.parameters())} == {1e-3}
