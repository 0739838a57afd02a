"""A head start for what begins at random: it learns on the states of the encoder as it is, before all is trained end to end.

Linear probing, then fine-tuning (Kumar et al. 2022): a random head's first gradients would spoil the encoder's features, and the
encoder is what costs. Here it runs once over each sequence, and the small parts behind it learn from its states for many epochs.
Of a family whose features have weights of their own (CEDR-PACRR's convolutions), only what stands behind the features learns.
"""

import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from tqdm import trange

from training.examples.sampling import StepBatch
from training.learning.loop import TrainingError, make_optimizer
from training.learning.objectives import Frozen, RankingObjective
from training.models.ranker_module import RankerModule
from training.recipe import Recipe


def probe(model: RankerModule, objective: RankingObjective, draw: Callable[[int], StepBatch], recipe: Recipe) -> list[float]:
    """Train all that stands behind the states; the mean loss of each epoch.

    Args:
        model: its encoder stays as it is.
        objective: the recipe's.
        draw: the batch of a step. Those behind the recipe's last step are taken: end to end it learns from other draws.
        recipe: its `probe` says how long; none: nothing is done.

    Raises TrainingError for a model that has nothing to learn behind its states.
    """
    if recipe.probe is None:
        return []
    first = recipe.steps
    bar = trange(first, first + recipe.probe.steps, desc=f"{recipe.name}: states", unit="step", file=sys.stderr)
    frozen = [one for step in bar for one in objective.frozen(model, draw(step).groups)]
    if not objective.loss_of_frozen(model, frozen[:1]).requires_grad:
        raise TrainingError(f"probe: model {recipe.model['name']} has nothing that learns behind its states; leave probe out")
    optimizer = make_optimizer(model, recipe.optimizer)  # the encoder gets no gradient, so its groups stand still
    rng = np.random.default_rng((recipe.seed, recipe.steps))
    model.train()
    losses = []
    for _ in range(recipe.probe.epochs):
        order = rng.permutation(len(frozen)).tolist()
        batches = [
            [frozen[place] for place in order[at : at + recipe.probe.groups]] for at in range(0, len(order), recipe.probe.groups)
        ]
        losses.append(float(np.mean([_step(model, objective, batch, optimizer, recipe.optimizer.clip) for batch in batches])))
    return losses


def _step(
    model: RankerModule, objective: RankingObjective, batch: Sequence[Frozen], optimizer: torch.optim.Optimizer, clip: float
) -> float:
    loss: Tensor = objective.loss_of_frozen(model, batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()
