"""Learns a document's prior score (`keyblock.pre_ranking.Prior`) from judged queries, without a model.

The loss of a relevant document is log(1 + exp(distance)), where the distance is how far its prior score is below that of the last
non-relevant document that would still be read (the bar). So a relevant document far below the bar costs most, and the order above
the bar matters little.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tqdm import tqdm

from keyblock.fusion import Fusion
from keyblock.pre_ranking import PRIOR_FEATURES, PreRanking, Prior
from keyblock.ranking.order import prior_features
from training.data.examples import Preparation
from training.data.types import Run
from training.evaluate.calibration.fit import minimized

PRIOR = 1e-4  # penalty of a squared weight, for features of deviation 1: keeps weights of correlated features from diverging
FEWEST = 10  # queries to learn from: fewer teach chance


class Request(NamedTuple):
    """A query's candidates.

    Attributes:
        features: shape (n_candidates, 5), see `keyblock.ranking.order.prior_features`.
        relevant: shape (n_candidates,).
    """

    features: NDArray[np.float64]
    relevant: NDArray[np.bool_]


def read_requests(preparation: Preparation, candidates: Run) -> list[Request]:
    """Each query's candidates, as the pipeline's selection sees them."""
    collection, pipeline = preparation.collection, preparation.pipeline
    found = []
    for query, names in tqdm(candidates.items(), desc=collection.name):
        if not names:
            continue
        selections = pipeline.select_each(preparation.query(query), [preparation.document(name) for name in names])
        features = prior_features(np.stack([one.evidence for one in selections]), [one.shared for one in selections])
        grades = collection.qrels.get(query, {})
        found.append(Request(features, np.asarray([grades.get(name, 0) > 0 for name in names])))
    return found


def fit_prior(collections: Sequence[Sequence[Request]], bar: int) -> Prior:
    """The prior score with the weights of least loss; every collection counts the same.

    Args:
        collections: the requests of each collection.
        bar: documents that the model reads of a request.

    Raises ValueError if too few requests have a relevant document and more than `bar` others.
    """
    usable = [[one for one in requests if one.relevant.any() and (~one.relevant).sum() > bar] for requests in collections]
    if (count := sum(map(len, usable))) < FEWEST:
        raise ValueError(
            f"prior: {count} queries have a relevant document and more than {bar} others among their candidates, and fewer than "
            f"{FEWEST} teach chance; raise --queries or --depth, or lower --share"
        )
    scale = np.concatenate([one.features for requests in usable for one in requests]).std(axis=0)
    scale[scale == 0] = 1.0  # the weight of a constant feature stays 0
    padded = [_padded(requests, scale) for requests in usable if requests]

    def loss(weights: torch.Tensor) -> torch.Tensor:
        return torch.stack([_loss(weights, one, bar) for one in padded]).mean() + PRIOR * weights.square().sum()

    weights = minimized(loss, torch.zeros(len(PRIOR_FEATURES), dtype=torch.float64), steps=100)
    return Prior.from_weights(weights.numpy() / scale)


class _Padded(NamedTuple):
    """Requests padded to one length: shapes (queries, candidates, 5), and twice (queries, candidates)."""

    features: torch.Tensor
    relevant: torch.Tensor
    others: torch.Tensor


def _padded(requests: Sequence[Request], scale: NDArray[np.float64]) -> _Padded:
    longest = max(len(one.relevant) for one in requests)
    features = np.zeros((len(requests), longest, len(PRIOR_FEATURES)))
    relevant, others = np.zeros((2, len(requests), longest), np.bool_)
    for row, one in enumerate(requests):
        real = slice(len(one.relevant))
        features[row, real], relevant[row, real], others[row, real] = one.features / scale, one.relevant, ~one.relevant
    return _Padded(torch.from_numpy(features), torch.from_numpy(relevant), torch.from_numpy(others))


def _loss(weights: torch.Tensor, requests: _Padded, bar: int) -> torch.Tensor:
    prior = requests.features @ weights
    last_read = torch.topk(prior.masked_fill(~requests.others, -torch.inf), bar, 1).values[:, -1:]
    lacking = F.softplus(last_read - prior) * requests.relevant
    return (lacking.sum(1) / requests.relevant.sum(1)).mean()


def fusion_prior(fusion: Fusion) -> Prior:
    """The fusion as a prior score, see `Fusion.prior_weights`: the one that a pre-ranking without a learned prior score uses."""
    return Prior.from_weights(np.append(fusion.prior_weights, 0.0))


def missed(requests: Sequence[Request], priors: Sequence[Prior], pre_ranking: PreRanking) -> float:
    """The share of the relevant candidates that are below the bar by all prior scores; 0 without relevant candidates."""
    below = (np.all([pre_ranking.below_the_bar(prior.of(one.features)) for prior in priors], axis=0) for one in requests)
    skipped = [mask[one.relevant] for mask, one in zip(below, requests, strict=True)]
    return float(np.concatenate([*skipped, np.zeros(0, np.bool_)]).mean()) if any(map(len, skipped)) else 0.0
