"""Learning what a document promises before the model reads it (`keyblock.cascade.Promise`): from judged queries, without a model.

The loss is that of the bar: how far a relevant document promises less than the last of the others that would be read, as
log(1 + exp(distance)). So what a query's best document is does not matter, and a relevant document far below the bar does.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tqdm import tqdm

from keyblock.cascade import PROMISING, Cascade, Promise
from keyblock.evidence import Fusion
from keyblock.order import promising
from training.collections.types import Run
from training.examples.preparation import Preparation

PRIOR = 1e-4  # of a squared weight, features scaled to a deviation of 1: keeps features that say the same from parting ways
FEWEST = 10  # queries that teach: fewer teach chance


class Request(NamedTuple):
    """A query's candidates.

    Attributes:
        features: shape (n_candidates, 5), see `keyblock.order.promising`.
        relevant: shape (n_candidates,).
    """

    features: NDArray[np.float64]
    relevant: NDArray[np.bool_]


def read_requests(preparation: Preparation, queries: Sequence[str], candidates: Run, depth: int) -> list[Request]:
    """The first `depth` candidates of each query, as the pipeline's selection sees them."""
    collection, pipeline = preparation.collection, preparation.pipeline
    found = []
    for query in tqdm(queries, desc=collection.name):
        names = list(candidates[query])[:depth]
        if not names:
            continue
        selections = pipeline.select_each(preparation.query(query), [preparation.document(name) for name in names])
        features = promising(np.stack([one.evidence for one in selections]), [one.shared for one in selections])
        grades = collection.qrels.get(query, {})
        found.append(Request(features, np.asarray([grades.get(name, 0) > 0 for name in names])))
    return found


def fit_promise(collections: Sequence[Sequence[Request]], bar: int) -> Promise:
    """The weights of least loss; every collection counts the same.

    Args:
        collections: requests of each.
        bar: documents that the model reads of a request.

    Raises ValueError where too few requests have a relevant document and more others than are read.
    """
    taught = [[one for one in requests if one.relevant.any() and (~one.relevant).sum() > bar] for requests in collections]
    if (usable := sum(map(len, taught))) < FEWEST:
        raise ValueError(
            f"promise: {usable} queries have a relevant document and more than {bar} others among their candidates, and fewer than "
            f"{FEWEST} teach chance; raise --queries or --depth, or lower --share"
        )
    scale = np.concatenate([one.features for requests in taught for one in requests]).std(axis=0)
    scale[scale == 0] = 1.0  # a feature that never differs teaches nothing: its weight stays 0
    padded = [_padded(requests, scale) for requests in taught if requests]
    weights = torch.zeros(len(PROMISING), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.stack([_loss(weights, one, bar) for one in padded]).mean() + PRIOR * weights.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return Promise.from_weights(weights.detach().numpy() / scale)


class _Padded(NamedTuple):
    """Requests beside each other: shapes (queries, candidates, 5), and twice (queries, candidates)."""

    features: torch.Tensor
    relevant: torch.Tensor
    others: torch.Tensor


def _padded(requests: Sequence[Request], scale: NDArray[np.float64]) -> _Padded:
    longest = max(len(one.relevant) for one in requests)
    features = np.zeros((len(requests), longest, len(PROMISING)))
    relevant, others = np.zeros((2, len(requests), longest), np.bool_)
    for row, one in enumerate(requests):
        of = slice(len(one.relevant))
        features[row, of], relevant[row, of], others[row, of] = one.features / scale, one.relevant, ~one.relevant
    return _Padded(torch.from_numpy(features), torch.from_numpy(relevant), torch.from_numpy(others))


def _loss(weights: torch.Tensor, requests: _Padded, bar: int) -> torch.Tensor:
    promise = requests.features @ weights
    last_read = torch.topk(promise.masked_fill(~requests.others, -torch.inf), bar, 1).values[:, -1:]
    lacking = F.softplus(last_read - promise) * requests.relevant
    return (lacking.sum(1) / requests.relevant.sum(1)).mean()


def fusion_promise(fusion: Fusion) -> Promise:
    """The fusion without the logit, as a promise: the one that a cascade without a learned promise uses."""
    weights = fusion.weights[1:-1]
    return Promise.from_weights(np.append(weights, 0.0)) if weights.any() else Promise(best_block=1.0)


def missed(requests: Sequence[Request], promises: Sequence[Promise], cascade: Cascade) -> float:
    """The share of the relevant candidates that are below the bar by all of the promises; 0 where there are none."""
    below = (np.all([cascade.below_the_bar(promise.of(one.features)) for promise in promises], axis=0) for one in requests)
    spared = [of[one.relevant] for of, one in zip(below, requests, strict=True)]
    return float(np.concatenate([*spared, np.zeros(0, np.bool_)]).mean()) if any(map(len, spared)) else 0.0
