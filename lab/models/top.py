"""IDCM's aggregator (Hofstätter et al., SIGIR 2021): a learned sum of the best passages' scores."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lab.families import Top
from training.model.aggregators import Aggregation


class TopAggregation(Aggregation):
    """See Top. The weights start at 1, as in the code of IDCM's authors. They combine scores; there is no state of a document."""

    def __init__(self, settings: Top, hidden: int) -> None:
        super().__init__(settings, hidden)
        self.weights = nn.Parameter(torch.ones(settings.best))

    def logits(self, states: Tensor, mask: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
        """See Aggregation."""
        best = len(self.weights)
        scores, lowest = score(states), torch.finfo(states.dtype).min
        scores = F.pad(scores.masked_fill(~mask, lowest), (0, best), value=lowest)  # (docs, passages + best)
        real = torch.arange(best, device=mask.device) < mask.sum(1, keepdim=True)  # (docs, best)
        return (scores.topk(best, dim=1).values.masked_fill(~real, 0.0) * self.weights).sum(1)
