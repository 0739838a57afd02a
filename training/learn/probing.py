"""Trains the randomly initialised parts on the states of the unchanged encoder, before everything is trained end to end.

This is linear probing, then fine-tuning (Kumar et al. 2022): a random head's first gradients would spoil the encoder's features.
The encoder, which costs most, runs once over each sequence, and the small parts behind it learn from its states for many epochs.
If a family's features have weights of their own (CEDR-PACRR's convolutions), only the parts behind the features learn.
"""

import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from tqdm import trange

from training.data.sampling import StepBatch
from training.learn.loop import TrainingError, make_optimizer
from training.learn.objectives import Frozen, RankingObjective
from training.model.ranker_module import RankerModule
from training.recipe import Recipe


def probe(model: RankerModule, objective: RankingObjective, draw: Callable[[int], StepBatch], recipe: Recipe) -> list[float]:
    """Train the parts behind the states. Returns the mean loss of each epoch.

    Args:
        model: the model; its encoder stays as it is.
        objective: the recipe's loss.
        draw: draws the batch of a step. Steps after the recipe's last are used, so that end-to-end training has other draws.
        recipe: its `probe` says how long; without one nothing is done.

    Raises TrainingError for a model without weights behind its states.
    """
    if recipe.probe is None:
        return []
    first = recipe.steps
    bar = trange(first, first + recipe.probe.steps, desc=f"{recipe.name}: states", unit="step", file=sys.stderr)
    frozen = [one for step in bar for one in objective.frozen(model, draw(step).groups)]
    if not objective.frozen_loss(model, frozen[:1]).requires_grad:
        raise TrainingError(f"probe: model {recipe.model['name']} has nothing that learns behind its states; leave probe out")
    optimizer = make_optimizer(recipe.optimizer, model)  # the encoder gets no gradient, so it does not change
    rng = np.random.default_rng((recipe.seed, recipe.steps))
    model.train()
    losses = []
    for _ in range(recipe.probe.epochs):
        order = rng.permutation(len(frozen)).tolist()
        batches = [
            [frozen[i] for i in order[start : start + recipe.probe.groups]] for start in range(0, len(order), recipe.probe.groups)
        ]
        losses.append(float(np.mean([_step(model, objective, batch, optimizer, recipe.optimizer.clip) for batch in batches])))
    return losses


def _step(
    model: RankerModule, objective: RankingObjective, batch: Sequence[Frozen], optimizer: torch.optim.Optimizer, clip: float
) -> float:
    loss: Tensor = objective.frozen_loss(model, batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()
