"""Ranking losses over groups of one relevant document and its negatives.

Each takes scores of shape (groups, 1 + negatives), the relevant document first, and gives a scalar.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor], Tensor]


def hinge(scores: Tensor) -> Tensor:
    """Mean over pairs of max(0, 1 - s+ + s-) (KeyB section 4.3)."""
    return F.relu(1 - scores[:, :1] + scores[:, 1:]).mean()


def logistic(scores: Tensor) -> Tensor:
    """Mean over pairs of ln(1 + exp(s- - s+)) (RankNet)."""
    return F.softplus(scores[:, 1:] - scores[:, :1]).mean()


def listwise(scores: Tensor) -> Tensor:
    """Cross-entropy of the relevant document among its group (localized contrastive estimation, Gao et al. 2021)."""
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def pointwise(scores: Tensor) -> Tensor:
    """Mean over documents of the cross-entropy of relevant or not (BeST section 4, for collections of few queries)."""
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1
    return F.binary_cross_entropy_with_logits(scores, labels)


LOSSES: dict[str, Loss] = {"hinge": hinge, "listwise": listwise, "logistic": logistic, "pointwise": pointwise}
"""By the names that training.declarations gives them."""
