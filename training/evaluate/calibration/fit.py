"""Learns the fusion on dev: weights that rank, then a scale and a bias that make the sigmoid a probability.

Weights minimise the listwise cross-entropy of the relevant documents among each query's candidates; every collection counts
the same. Scale and bias are a logistic regression (Platt 1999) of relevance on the fused score of every candidate. Both fits have a
prior around their start: with few queries the result stays near the start, with many it follows the queries.

A query's best score should also tell whether any candidate answers it. Each dev query counts twice for that: as it is, and without
its relevant candidates, when no candidate answers it. A score that means the same for all queries separates the two.
"""

import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tqdm import tqdm

from keyblock.fusion import FEATURES, Fusion, sigmoid
from training.data.collection import Collection
from training.data.files import ranked
from training.data.types import FileError, Run
from training.evaluate.measures import Values, means, per_query
from training.evaluate.ranking import LocalRanker

RELIABILITY_EDGES = (0.02, 0.05, 0.1, 0.2, 0.5)
MASS = FEATURES.index("mass")
LOWEST = -100.0  # the logit of a document that cannot be scored
# Weights of the normal prior around a calibrated start and around any other, counted in queries, in squared standard deviations of
# a feature's part. In simulation 5 keeps the fit of 15 queries better than its start, and changes nothing at 200.
CALIBRATED, UNCALIBRATED = 5.0, 0.5


@dataclass
class DevScores:
    """One collection's dev candidates at one budget.

    Attributes:
        features: by query, shape (n_candidates, n_features) in the order of FEATURES.
        documents: by query, the candidates' ids.
    """

    collection: Collection
    features: dict[str, NDArray[np.float64]]
    documents: dict[str, list[str]]

    def fused(self, query: str, fusion: Fusion, kept: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """The fused scores of a query's candidates, shape (n_candidates,); with `kept`, as if the query had only those."""
        features = self.features[query] if kept is None else self.features[query][kept]
        return fusion.fuse(features[:, 0], features[:, 1:])

    def labels(self, query: str) -> NDArray[np.float64]:
        """1 for relevant candidates, 0 for others; shape (n_candidates,)."""
        grades = self.collection.qrels.get(query, {})
        return np.asarray([float(grades.get(d, 0) > 0) for d in self.documents[query]])

    def measure(self, fusion: Fusion) -> dict[str, float]:
        """Mean RR@10 and nDCG@10 of the fused scores."""
        return means(self.values(fusion))

    def values(self, fusion: Fusion) -> Values:
        """RR@10 and nDCG@10 of the fused scores, by query."""
        run = self.run(fusion)
        return per_query(self.collection.qrels, run, run)

    def run(self, fusion: Fusion) -> Run:
        """The candidates by their fused scores, best first."""
        run: Run = {}
        for query in self.features:
            run[query] = ranked(dict(zip(self.documents[query], self.fused(query, fusion).tolist(), strict=True)))
        return run


def score_dev(ranker: LocalRanker, candidates: Run, budget: int) -> DevScores:
    """Features of each query's candidates at a budget."""
    collection, features, documents = ranker.preparation.collection, {}, {}
    for query, scores in tqdm(candidates.items(), desc=f"{collection.name} at {budget} tokens"):
        documents[query] = list(scores)
        logits, selections, _ = ranker.score(query, documents[query], budget)
        finite = np.maximum(logits.astype(np.float64), LOWEST)  # the logit of a document without a block is -inf
        features[query] = np.column_stack([finite, np.stack([s.evidence for s in selections])])
    return DevScores(collection, features, documents)


def write_scores(scores: DevScores, path: Path) -> None:
    """Write scores to a file, so that another fit or default budget does not need the model again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {f"features/{query}": features for query, features in scores.features.items()}
    arrays |= {f"documents/{query}": np.asarray(ids) for query, ids in scores.documents.items()}
    with path.with_suffix(".part").open("wb") as out:
        np.savez(out, **arrays)
    path.with_suffix(".part").replace(path)


def read_scores(path: Path, collection: Collection) -> DevScores:
    """Read what `write_scores` wrote. Raises FileError when it is damaged."""
    scores = DevScores(collection, {}, {})
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                kind, _, query = name.partition("/")
                if kind == "features":
                    scores.features[query] = arrays[name]
                else:
                    scores.documents[query] = arrays[name].tolist()
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise FileError(f"{path}: damaged, remove it to score again ({error})") from None
    return scores


def fit_fusion(scored: Sequence[DevScores], use: Sequence[str] = FEATURES, start: Fusion | None = None, least: int = 1) -> Fusion:
    """Fit weights (features not in `use` stay 0), then scale, the weight of the query's mass, and bias.

    The fit starts at `start`, and few queries move it little.

    Args:
        scored: dev candidates of each collection.
        use: the features that may get a weight.
        start: the calibrated fusion of the model that training began from; None: the logit alone, with a weaker prior.
        least: how many queries must have a relevant candidate.

    Raises ValueError if fewer than `least` queries, or none, have a relevant candidate.
    """
    usable = [sum(bool(s.labels(q).any()) for q in s.features) for s in scored]
    if not any(usable):
        raise ValueError("fusion: no dev query has a relevant document among its candidates; ask for more queries or depth")
    if sum(usable) < least:
        raise ValueError(
            f"calibration: {sum(usable)} dev queries have a relevant document among their candidates, and fewer than {least} teach "
            f"chance; judge more, raise --queries or --depth, or accept it with --least {sum(usable)}. The fusion stays as it is"
        )
    used = np.asarray([name in use for name in FEATURES])
    queries = len([n for n in usable if n]) * min(n for n in usable if n)  # the smallest collection limits what is known
    prior = (UNCALIBRATED if start is None else CALIBRATED) / queries
    weights = _ranking_weights(scored, used, (start or Fusion()).weights * used, prior)
    scale, mass, bias = _platt(scored, weights, prior, with_mass=bool(used[MASS]))
    return Fusion.from_weights(bias, scale * weights + mass * np.eye(len(FEATURES))[MASS])


def _ranking_weights(
    scored: Sequence[DevScores], used: NDArray[np.bool_], start: NDArray[np.float64], prior: float
) -> NDArray[np.float64]:
    """The weights that rank best; see `listwise_weights`. A feature that is not used has weight 0."""
    spread = _rows(scored).std(axis=0)
    groups = [_groups(scores, used) for scores in scored]
    weights = np.zeros(len(FEATURES))
    weights[used] = listwise_weights(groups, start[used], spread[used], prior)
    return weights


Group = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Features of a query's candidates, shape (n_candidates, n_features), and labels, of which one at least is 1."""


def listwise_weights(
    groups: Sequence[Sequence[Group]], start: NDArray[np.float64], spread: NDArray[np.float64], prior: float
) -> NDArray[np.float64]:
    """The most probable weights of features, shape (n_features,), under a normal prior around `start`.

    Args:
        groups: of each collection; every collection counts the same.
        start: shape (n_features,).
        spread: shape (n_features,): a standard deviation of the prior moves a feature's part by 1.
        prior: its weight.
    """
    tensors = [[(torch.from_numpy(f), torch.from_numpy(y)) for f, y in of_collection] for of_collection in groups if of_collection]
    origin, width = torch.tensor(start), torch.tensor(spread)

    def loss(weights: torch.Tensor) -> torch.Tensor:
        losses = [torch.stack([_listwise(f @ weights, y) for f, y in pairs]).mean() for pairs in tensors]
        return torch.stack(losses).mean() + prior * ((weights - origin) * width).square().sum()

    return minimized(loss, origin).numpy()


def minimized(loss: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, steps: int = 200) -> torch.Tensor:
    """The parameters of least loss that L-BFGS finds from `start`, which is not changed."""
    parameters = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([parameters], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(parameters)
        value.backward()
        return value

    optimizer.step(closure)
    return parameters.detach()


def _rows(scored: Sequence[DevScores]) -> NDArray[np.float64]:
    """The features of every candidate, shape (candidates, features)."""
    return np.concatenate([features for scores in scored for features in scores.features.values()])


def _groups(scores: DevScores, used: NDArray[np.bool_]) -> list[Group]:
    """Features and labels of the queries that have a relevant candidate."""
    pairs = [(f[:, used], scores.labels(q)) for q, f in scores.features.items()]
    return [(f, y) for f, y in pairs if y.any()]


def _listwise(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return -(F.log_softmax(scores, 0) * labels).sum() / labels.sum()


def _platt(
    scored: Sequence[DevScores], weights: NDArray[np.float64], prior: float, *, with_mass: bool
) -> tuple[float, float, float]:
    """Scale, weight of the query's mass, and bias of a logistic regression on the fused score.

    Every collection counts the same. The prior keeps the scale near 1 and the weight of the mass near 0.
    """
    rows = _rows(scored)
    inputs = np.column_stack([rows @ weights, rows[:, MASS] * with_mass])
    labels = np.concatenate([s.labels(q) for s in scored for q in s.features])
    sizes = [sum(map(len, s.features.values())) for s in scored]
    scale, mass_weight, bias = logistic_weights(inputs, labels, sizes, prior)
    return scale, mass_weight, bias


def logistic_weights(inputs: NDArray[np.float64], labels: NDArray[np.float64], sizes: Sequence[int], prior: float) -> list[float]:
    """The weights of a logistic regression of the labels on the inputs, and last its bias (Platt 1999).

    Args:
        inputs: shape (n, n_inputs), collection after collection.
        labels: shape (n,), 0 or 1.
        sizes: rows of each collection; every collection counts the same.
        prior: weight of a normal prior around 1 for the first weight and 0 for the others, in deviations of an input's part. It is
            multiplied by the share of ones: a query's candidates share its relevant ones, and count as that many observations.
    """
    share = torch.from_numpy(np.repeat([1 / (len(sizes) * n) for n in sizes], sizes))
    x, y, spread = torch.from_numpy(inputs), torch.from_numpy(labels), torch.from_numpy(inputs.std(axis=0))
    start = torch.zeros(inputs.shape[1] + 1, dtype=torch.float64)
    start[0] = 1.0

    def loss(parameters: torch.Tensor) -> torch.Tensor:
        fused = x @ parameters[:-1] + parameters[-1]
        fit = (F.binary_cross_entropy_with_logits(fused, y, reduction="none") * share).sum()
        return fit + prior * y.mean() * ((parameters[:-1] - start[:-1]) * spread).square().sum()

    found: list[float] = minimized(loss, start).tolist()
    return found


def calibration_gap(scores: NDArray[np.float64], labels: NDArray[np.float64], bins: int = 10) -> float:
    """Expected calibration error: the mean gap between score and share of ones, over bins of equal width, weighted by their counts.

    Args:
        scores: shape (n,), 0 to 1.
        labels: shape (n,), 0 or 1.
        bins: the number of bins.
    """
    which = np.minimum((scores * bins).astype(int), bins - 1)
    inside = [which == number for number in range(bins) if (which == number).any()]
    return float(sum(abs(scores[rows].mean() - labels[rows].mean()) * rows.mean() for rows in inside))


def calibration_error(scored: Sequence[DevScores], fusion: Fusion) -> float:
    """Expected calibration error of relevance_score over all candidates."""
    p = np.concatenate([sigmoid(s.fused(query, fusion)) for s in scored for query in s.features])
    return calibration_gap(p, np.concatenate([s.labels(q) for s in scored for q in s.features]))


def reliability(scores: DevScores, fusion: Fusion) -> list[dict[str, float]]:
    """For each range of relevance_score in one collection, its mean and the share of relevant candidates.

    Collections are not pooled: one that scores too low would hide another that scores too high.
    """
    p = np.concatenate([sigmoid(scores.fused(query, fusion)) for query in scores.features])
    y = np.concatenate([scores.labels(query) for query in scores.features])
    which = np.digitize(p, RELIABILITY_EDGES)
    inside = [which == b for b in range(len(RELIABILITY_EDGES) + 1)]
    return [
        {"mean_score": float(p[rows].mean()), "share_relevant": float(y[rows].mean()), "candidates": int(rows.sum())}
        for rows in inside
        if rows.any()
    ]


def quality_table(scored: Mapping[str, Sequence[DevScores]], fusion: Fusion) -> dict[str, dict[str, dict[str, float]]]:
    """Dev measures by collection and setting (as text): of the fused score, and of the model alone."""
    alone = Fusion()
    table: dict[str, dict[str, dict[str, float]]] = {}
    for setting, collections in scored.items():
        for s in collections:
            fused, model = s.measure(fusion), s.measure(alone)
            row = fused | {f"{measure} model alone": value for measure, value in model.items()} | {"queries": len(s.features)}
            table.setdefault(s.collection.name, {})[setting] = row
    return table


class Tops(NamedTuple):
    """The best relevance score of each query.

    Attributes:
        answered: shape (n_answered,), for the queries with a relevant candidate.
        unanswered: shape (n_unanswered,), for the same queries without their relevant candidates, and for those that have none.
        right: shape (n_answered,), whether the best candidate is relevant.
    """

    answered: NDArray[np.float64]
    unanswered: NDArray[np.float64]
    right: NDArray[np.bool_]


class Threshold(NamedTuple):
    """A relevance score below which no candidate answers, measured with an answer for half of the queries.

    Attributes:
        score: the threshold.
        precision: the share of queries with an answer among those whose best score reaches it.
        recall: the share of queries with an answer whose best score reaches it.
        refused: the share of queries without an answer whose best score does not reach it.
    """

    score: float
    precision: float
    recall: float
    refused: float


def top_scores(scores: DevScores, fusion: Fusion, most: int | None = None) -> Tops:
    """The best relevance scores of the queries, with and without their relevant candidates.

    With `most`, of so many candidates drawn at random: one relevant and others, or others alone.
    """
    answered, unanswered, right = [], [], []
    rng = np.random.default_rng(0)
    for query in scores.features:
        relevant = scores.labels(query) > 0
        answers, others = (rng.permutation(np.flatnonzero(which)) for which in (relevant, ~relevant))
        if most is not None:
            answers = answers[:1]
        if len(answers):
            kept = np.isin(np.arange(len(relevant)), [*answers, *(others if most is None else others[: most - 1])])
            found = sigmoid(scores.fused(query, fusion, kept))
            answered.append(found.max())
            right.append(found[relevant[kept]].max() >= found.max())
        if len(others):
            unanswered.append(sigmoid(scores.fused(query, fusion, np.isin(np.arange(len(relevant)), others[:most]))).max())
    return Tops(np.asarray(answered), np.asarray(unanswered), np.asarray(right, dtype=np.bool_))


def auroc(above: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    """The area under the ROC curve: the share of pairs whose first value is larger; equal values count half.

    Args:
        above: shape (n,), n > 0.
        below: shape (m,), m > 0.
    """
    below = np.sort(below)
    smaller, not_larger = np.searchsorted(below, above, "left"), np.searchsorted(below, above, "right")
    return float((smaller + not_larger).mean() / (2 * len(below)))


LISTS = (1, 5, None)
"""Candidates of the lists that the threshold is chosen on: users send one document as well as many, whose best scores higher."""


def best_threshold(tops: Sequence[Tops]) -> Threshold:
    """The score that best separates queries with an answer from those without; every collection counts the same.

    It maximises Youden's J, recall + refused - 1 (Youden 1950), since the share of a user's queries without an answer is unknown.
    """
    candidates = np.unique(np.concatenate([np.concatenate([one.answered, one.unanswered]) for one in tops]))
    middles = (candidates[1:] + candidates[:-1]) / 2 if len(candidates) > 1 else candidates
    passed = [np.mean([_share_from(getattr(one, part), middles) for one in tops], axis=0) for part in ("answered", "unanswered")]
    return at_threshold(tops, float(middles[np.argmax(passed[0] - passed[1])]))


def _share_from(values: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of the values that reach each score, shape (n_scores,)."""
    return 1 - np.searchsorted(np.sort(values), scores, "left") / len(values)


def at_threshold(tops: Sequence[Tops], score: float) -> Threshold:
    """The threshold at this score with its rates, as means over the collections."""
    recall = float(np.mean([(one.answered >= score).mean() for one in tops]))
    passed = float(np.mean([(one.unanswered >= score).mean() for one in tops]))
    precision = recall / (recall + passed) if recall + passed else 1.0
    return Threshold(score, precision, recall, 1 - passed)


def threshold_interval(collections: Sequence[Sequence[Tops]], draws: int = 200, seed: int = 0) -> tuple[float, float]:
    """Where 90% of the thresholds of other dev queries would lie: percentiles of the bootstrap over queries (Efron 1979).

    Args:
        collections: the best scores of each collection's queries, in lists of several lengths.
        draws: how often queries are drawn.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    found = [best_threshold([tops for lists in collections for tops in _resampled(lists, rng)]).score for _ in range(draws)]
    low, high = np.percentile(found, [5, 95]).tolist()
    return low, high


def _resampled(lists: Sequence[Tops], rng: np.random.Generator) -> list[Tops]:
    """The lists of a collection with queries drawn anew, the same ones in each."""
    answered, unanswered = (rng.integers(size, size=size) for size in (len(lists[0].answered), len(lists[0].unanswered)))
    return [Tops(one.answered[answered], one.unanswered[unanswered], one.right[answered]) for one in lists]


def top_gap(tops: Tops) -> float:
    """The calibration error of the best candidates' scores alone, with an answer for half of the queries.

    The error over all candidates is small for any score, since nearly all candidates are clearly not relevant.
    """
    labels = np.concatenate([tops.right, np.zeros(len(tops.unanswered))])
    return calibration_gap(np.concatenate([tops.answered, tops.unanswered]), labels)
