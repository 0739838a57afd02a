"""The training loop, readable from top to bottom: draw, forward, loss, step, log; checkpoint and measure as it goes."""

import json
import math
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from keyblock.pipeline import Pipeline
from training.batching import pad
from training.checkpoints import load_state, save_state
from training.curves import draw_curves
from training.dev import DevSet
from training.losses import LOSSES
from training.model import CrossEncoder
from training.recipe import Optimizer, Recipe
from training.sampling import Source, StepBatch, draw_step


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line for a person."""


def learning_rate_factor(step: int, steps: int, warmup: float) -> float:
    """Linear from 0 to 1 over the first `warmup` share of the steps, then linear to 0 at the end."""
    rise = max(1, round(warmup * steps))
    return (step + 1) / rise if step < rise else (steps - step) / max(1, steps - rise)


def make_optimizer(model: CrossEncoder, how: Optimizer) -> torch.optim.AdamW:
    """AdamW with a learning rate of its own for the head; norms and biases are not decayed."""
    encoder = [p for p in model.encoder.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in encoder if p.ndim > 1], "lr": how.encoder_lr, "weight_decay": how.weight_decay},
        {"params": [p for p in encoder if p.ndim <= 1], "lr": how.encoder_lr, "weight_decay": 0.0},
        {"params": list(model.head.parameters()), "lr": how.head_lr, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, fused=True)


@dataclass
class Trainer:
    """Trains `model` by `recipe`; continues from RUN's last checkpoint when there is one."""

    recipe: Recipe
    model: CrossEncoder
    pipeline: Pipeline
    sources: Mapping[str, Source]
    dev: DevSet
    run: Path

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.optimizer = make_optimizer(self.model, self.recipe.optimizer)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, self.recipe.steps, self.recipe.optimizer.warmup)
        )
        self.step = load_state(self.run, self.model, self.optimizer, self.scheduler)
        self._drawer = ThreadPoolExecutor(1, thread_name_prefix="draw")

    def train(self) -> None:
        """Run the steps that are left, then measure and save. Raises TrainingError when loss or gradient is not a number."""
        self.model.train()
        bar = tqdm(total=self.recipe.steps, initial=self.step, desc=self.recipe.name, unit="step", dynamic_ncols=True)
        try:
            self._steps(bar)
        finally:  # an error's line does not stand behind half a bar, and no thread draws on
            bar.close()
            self._drawer.shutdown(cancel_futures=True)

    def _steps(self, bar: tqdm) -> None:
        drawn = self._draw_ahead(self.step)
        while self.step < self.recipe.steps:
            batch = drawn.result()
            drawn = self._draw_ahead(self.step + 1)  # drawing overlaps the step: it costs the model no time
            started = time.perf_counter()
            loss = self._update(batch)
            self.step += 1
            self._log(loss=loss, budget=batch.budget, sequences=len(batch.sequences), seconds=time.perf_counter() - started)
            bar.update()
            bar.set_postfix(loss=f"{loss:.3f}", budget=batch.budget, refresh=False)
            self._at_milestones()

    def _draw_ahead(self, step: int) -> Future[StepBatch]:
        return self._drawer.submit(draw_step, self.sources, self.recipe, step)

    def _update(self, batch: StepBatch) -> float:
        """One optimizer step over the batch, in slices of whole groups under `micro_tokens`; the mean loss."""
        groups = len(batch.sequences) // batch.group
        at_once = max(1, self.recipe.micro_tokens // (batch.budget * batch.group))
        total = 0.0
        for first in range(0, groups, at_once):
            share = min(at_once, groups - first) / groups
            rows = batch.sequences[first * batch.group : (first + at_once) * batch.group]
            loss = self._loss(rows, batch.group) * share
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optimizer.clip).item()
        if not (math.isfinite(total) and math.isfinite(norm)):  # said before it reaches the weights, and a checkpoint
            what = f"step {self.step}: the loss is {total}, its gradient's norm {norm}"
            raise TrainingError(f"{what}; lower optimizer.encoder_lr or use precision: fp32")
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def _loss(self, sequences: list[Any], group: int) -> Tensor:
        tokenizer = self.pipeline.tokenizer
        inputs = pad(sequences, tokenizer.pad_id, tokenizer.template.document_type).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            scores = self.model(*inputs)
        return LOSSES[self.recipe.loss](scores.float().view(-1, group))

    def _at_milestones(self) -> None:
        last = self.step == self.recipe.steps
        if last or self.step % self.recipe.evaluate_every == 0:
            self._log(dev=self.dev.measure(self.model))
            draw_curves(self.run)
        if last or self.step % self.recipe.checkpoint_every == 0:
            save_state(self.run, self.model, self.optimizer, self.scheduler, self.step)

    def _log(self, **what: Any) -> None:
        with (self.run / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": self.step, "time": round(time.time(), 1), **what}) + "\n")
