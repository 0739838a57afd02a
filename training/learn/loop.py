"""The training loop, readable from top to bottom: draw, forward, loss, step, log, with checkpoints and dev measurements.

Several processes (GPUs, or CPUs over gloo) each take a share of every step's groups. Their gradients are summed once a step. So the
update is the same as that of a single process over the whole batch, however often an objective calls the model.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast_object_list
from torch import Tensor
from tqdm import tqdm

from training.data.sampling import Group, StepBatch
from training.learn.dev import MEASURE, DevSet, EarlyStopping, dev_quality
from training.learn.objectives import Objective
from training.learn.tracking import Throughput, Tracker, draw_curves, in_words, read_log
from training.model import devices
from training.model.checkpoints import Stateful, load_state, save_best, save_state
from training.model.devices import fastest_device
from training.model.ranker_module import RankerModule
from training.recipe import Optimizer, Recipe

MEASURING = timedelta(hours=12)  # longest time of one measurement on dev


class TrainingError(ValueError):
    """Training cannot continue; the message is one line for the user."""


def learning_rate_factor(step: int, steps: int, warmup: float, decay: str = "linear") -> float:
    """The share of the peak rate: linear from 0 to 1 over the share `warmup` of the steps, then linear to 0, or 1 without decay."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return (steps - step) / max(1, steps - rise) if decay == "linear" else 1.0


def make_optimizer(settings: Optimizer, *models: RankerModule) -> torch.optim.AdamW:
    """AdamW. Randomly initialised parts (head and aggregator) have their own rate; norms and biases are not decayed."""
    encoder = [p for model in models for p in model.pretrained() if p.requires_grad]
    inside = {id(p) for p in encoder}
    fresh = [p for model in models for p in model.parameters() if p.requires_grad and id(p) not in inside]
    groups = [
        {"params": [p for p in encoder if p.ndim > 1], "lr": settings.encoder_lr, "weight_decay": settings.weight_decay},
        {"params": [p for p in encoder if p.ndim <= 1], "lr": settings.encoder_lr, "weight_decay": 0.0},
        {"params": fresh, "lr": settings.head_lr, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, fused=True)


def micro_batches(groups: Sequence[Group], cost: Callable[[Group], int], tokens: int) -> Iterator[list[Group]]:
    """Batches of the groups, in order, that cost at most `tokens` each; a group that costs more is a batch alone."""
    batch: list[Group] = []
    total = 0
    for group in groups:
        own = cost(group)
        if batch and total + own > tokens:
            yield batch
            batch, total = [], 0
        batch.append(group)
        total += own
    if batch:
        yield batch


def make_accelerator() -> Accelerator:
    """The accelerator of this process, which may train together with others (torchrun, accelerate launch), on a GPU or the CPU."""
    patience = InitProcessGroupKwargs(timeout=MEASURING)  # other processes wait while the main one measures on dev
    return Accelerator(cpu=fastest_device().type == "cpu", kwargs_handlers=[patience])


@dataclass
class Trainer:
    """Trains `model` by `recipe`; continues from RUN's last checkpoint if there is one.

    Attributes:
        recipe: the recipe.
        model: the model in training.
        objective: computes the loss of some of a step's groups.
        draw: draws the batch of a step, by its number from 0; the same batch in every process.
        dev: the dev sample that is measured during training.
        run: the run directory; only the main process writes into it.
        accelerator: this process's accelerator.
        queries: the training queries of all collections; 0: unknown.
        selector: a second ranker that learns by the same objective, and is part of the checkpoint (BeST's theta 0).
    """

    recipe: Recipe
    model: RankerModule
    objective: Objective
    draw: Callable[[int], StepBatch]
    dev: DevSet
    run: Path
    accelerator: Accelerator = field(default_factory=make_accelerator)
    queries: int = 0
    selector: RankerModule | None = None

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.rankers = [self.model] if self.selector is None else [self.model, self.selector]
        self.optimizer = make_optimizer(self.recipe.optimizer, *self.rankers)
        steps, settings = self.recipe.steps, self.recipe.optimizer
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, steps, settings.warmup, settings.decay)
        )
        self.stopping = EarlyStopping(self.recipe.patience)
        self.step = load_state(self.run, self.model, self._parts())
        self.throughput = Throughput()
        self._drawer = ThreadPoolExecutor(1, thread_name_prefix="draw")

    def _parts(self) -> dict[str, Stateful]:
        """The parts of a checkpoint beside the model."""
        parts: dict[str, Stateful] = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        parts |= {} if self.recipe.patience is None else {"early_stopping": self.stopping}
        return parts if self.selector is None else parts | {"selector": self.selector}

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or early stopping ends the training."""
        return self.step >= self.recipe.steps or self.stopping.exhausted

    def train(self) -> None:
        """Run the remaining steps, then measure and save.

        Raises TrainingError if loss or gradient is not finite, CheckpointError if a checkpoint cannot be written.
        """
        for ranker in self.rankers:
            ranker.train()
        self.tracker = Tracker(self.run)
        steps, name = self.recipe.steps, self.recipe.name
        if self.queries:
            self._say(self._passes())
        self._say(f"computes in {devices.in_words(self.recipe.precision, self.device)}")
        bar = tqdm(total=steps, initial=self.step, desc=name, unit="step", dynamic_ncols=True, disable=not self._main)
        try:
            self._steps(bar)
        finally:  # close the bar before an error is printed, and stop the drawing thread
            bar.close()
            self._drawer.shutdown(cancel_futures=True)
        if self._main and self.recipe.init and self.recipe.steps:
            self._say(self._compared())
        if self._main and self.throughput.steps:
            self._say(in_words(self.throughput.steps, self.throughput.seconds, self.throughput.figures(self.device)))

    @property
    def _main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    def _say(self, line: str) -> None:
        if self._main:
            tqdm.write(f"{self.recipe.name}: {line}", file=sys.stderr)  # above the bar

    def _steps(self, bar: tqdm) -> None:
        if self.recipe.init and not self.step and self.recipe.steps:
            self._evaluate()  # the model that it began from: what training has to better
        if not self.recipe.steps:
            self._at_milestones()  # a model put together without training is measured and saved, too
        drawn = None if self.finished else self._draw_ahead(self.step)
        while drawn is not None:
            started = time.perf_counter()
            batch = drawn.result()
            drawn = self._draw_ahead(self.step + 1)  # drawing overlaps the step, so that the model never waits
            loss = self._update(batch)
            self.step += 1
            self._tell(batch, loss, time.perf_counter() - started, bar)
            self._at_milestones()
            if self.finished:
                return

    def _before_and_after(self) -> tuple[float | None, int, float]:
        """The quality on dev of the model that training began from, if it was measured; step and quality of the trained one."""
        measured = {record["step"]: dev_quality(record["dev"]) for record in read_log(self.run) if "dev" in record}
        before = measured.pop(0, None)
        best = max(measured, key=lambda step: (measured[step], -step))
        after = max(measured) if self.recipe.patience is None else best
        return before, after, measured[after]

    @property
    def kept_beginning(self) -> bool:
        """Whether the run's model is the one that training began from: early stopping found no other as good."""
        before, _, after = self._before_and_after()
        return self.recipe.patience is not None and before is not None and after < before

    def _compared(self) -> str:
        """The model that counts beside the one that training began from, on dev."""
        before, step, after = self._before_and_after()
        if before is None:
            return "the model that it began from was not measured"
        line = f"{MEASURE} on dev: {before:.4f} before training, {after:.4f} after step {step:,}"
        kept = ", whose weights it keeps" if self.kept_beginning else ""
        return line if after > before else f"{line}: no better than {self.recipe.init}{kept}"

    def _passes(self) -> str:
        """How often the steps go through the training queries."""
        queries, steps, each = self.queries, self.recipe.steps, self.recipe.queries_of_a_step
        return f"{queries:,} queries, {steps:,} steps of about {each:.0f}: {steps * each / queries:.1f} passes"

    def _draw_ahead(self, step: int) -> Future[StepBatch]:
        return self._drawer.submit(self.draw, step)

    def _tell(self, batch: StepBatch, loss: float, seconds: float, bar: tqdm) -> None:
        pairs = sum(len(group.documents) for group in batch.groups)
        tokens = sum(map(self.objective.cost, batch.groups))
        self.throughput.add(pairs, tokens, seconds)
        self._log(loss=loss, budget=batch.budget, pairs=pairs, tokens=tokens, seconds=round(seconds, 4))
        bar.update()
        bar.set_postfix(loss=f"{loss:.3f}", budget=batch.budget, refresh=False)

    def _update(self, batch: StepBatch) -> float:
        """Take one optimizer step over the batch; returns its mean loss."""
        total = self._backward(batch)
        if self.accelerator.num_processes > 1:
            total = self.accelerator.reduce(total, "sum")
            self._sum_gradients()
        loss = total.item()
        norm = self._clip()
        if not (math.isfinite(loss) and math.isfinite(norm)):  # before it reaches the weights and a checkpoint
            problem = f"step {self.step}: the loss is {loss}, its gradient's norm {norm}"
            raise TrainingError(f"{problem}; lower optimizer.encoder_lr or use precision: fp32")
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def _clip(self) -> float:
        """Clip each ranker's gradient by its own norm, as they share no loss; returns the largest norm, or NaN if one is NaN."""
        clip = self.recipe.optimizer.clip
        norms = [torch.nn.utils.clip_grad_norm_(ranker.parameters(), clip) for ranker in self.rankers]
        return torch.stack(norms).max().item()

    def _backward(self, batch: StepBatch) -> Tensor:
        """Accumulate the gradients of this process's share in micro batches; returns its part of the mean loss."""
        process, processes = self.accelerator.process_index, self.accelerator.num_processes
        # seeds dropout, so that a resumed run repeats it
        torch.manual_seed((self.recipe.seed * self.recipe.steps + self.step) * processes + process)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for groups in micro_batches(batch.groups[process::processes], self.objective.cost, self.recipe.micro_tokens):
            loss = self.objective(self.model, groups) * (len(groups) / len(batch.groups))
            loss.backward()
            total += loss.detach()
        return total

    def _sum_gradients(self) -> None:
        """Sum the processes' gradients; a process without a group adds zeros."""
        parameters = [p for ranker in self.rankers for p in ranker.parameters() if p.requires_grad]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
        summed = self.accelerator.reduce(flat, "sum").split([p.numel() for p in parameters])
        for parameter, gradient in zip(parameters, summed, strict=True):
            parameter.grad = gradient.view_as(parameter)

    def _at_milestones(self) -> None:
        if self.step >= self.recipe.steps or self.step % self.recipe.evaluate_every == 0:
            self._evaluate()
        if self._main and (self.finished or self.step % self.recipe.checkpoint_every == 0):
            save_state(self.run, self.model, self._parts(), self.step)

    def _evaluate(self) -> None:
        """Measure in the main process and send the result to every process, so that all stop together."""
        (dev,) = broadcast_object_list([self.dev.measure(self.model) if self._main else None])
        quality = dev_quality(dev)
        better = not self.step or self.stopping.improves(quality)
        if not self.step:
            self.stopping.begin(quality)
        if not self._main:
            return
        each = f" ({', '.join(f'{name} {values[MEASURE]:.4f}' for name, values in dev.items())})" if len(dev) > 1 else ""
        self._say(f"step {self.step:,}: {MEASURE} {quality:.4f} on dev{each}")
        self._log(dev=dev, **self.throughput.figures(self.device))
        draw_curves(self.run)
        if better and self.recipe.patience is not None:
            save_best(self.run, self.model)

    def _log(self, **values: Any) -> None:
        if self._main:
            self.tracker.record(self.step, **values)
