"""When the model may stop reading. It reads documents in the order of their promise, a batch at a time. Measured on dev.

    python -m benchmarks.stopping --data DATA             a bound learned on train, beside the cascade and fixed numbers
    python -m benchmarks.stopping --data DATA --hurried   which order finds most where a deadline lets the model read ten or twenty

An unread document cannot be a result if an upper bound of its score is below the score of the last result so far. The bound is a
quantile of the fused score, predicted from what selection knows (a quantile regression). A judge uses more features: for each
border between two batches a logistic regression predicts whether all results are read. Both stop where their lead exceeds a slack.
The slack is chosen so that at most a given share of train requests misses a result, as Li et al. (EMNLP 2022) cut candidates.
The model's scores are kept in `--kept`. Another bundle, sample or time limit is scored anew.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from ir_measures import RR, nDCG
from numpy.typing import NDArray

from benchmarks.adaptive import COLLECTIONS, DEFAULT
from benchmarks.systems import ROOT
from keyblock.bundle import Bundle, load_bundle
from keyblock.cascade import Cascade, Promise, in_turns
from keyblock.order import promising
from keyblock.runtime.model import GraphModel
from keyblock.scoring import Model, score_selections
from training.collections.collection import Collection
from training.collections.first_stage import first_stage_run
from training.collections.types import Run
from training.evaluation.evaluate import sample
from training.evaluation.measures import Values, per_query
from training.evaluation.significance import p_text, paired_t_test
from training.evaluation.tables import markdown
from training.examples.preparation import Preparation

QUERIES = {("squad-far", "train"): 300, ("squad-far", "dev"): 400}  # 100 of every other collection and split
RESULTS = (10, 3, 1)
BATCH = 8  # documents of 128 tokens; a CPU takes no longer for each than in larger batches
FIRST = (8, 12, 16, 20)
MISSED = (0.05, 0.02)  # shares of train requests that may miss a result
QUANTILE = 0.95
HURRIED = (10, 20)  # documents that the model can read before a deadline
RULE, AT_ONCE = "the cascade", "as soon as the results are read"
PRIOR = 1e-3  # penalty of a squared weight


class Request(NamedTuple):
    """A query's candidates.

    Attributes:
        query: the query's id.
        names: the documents' ids, in the order given.
        features: shape (n_documents, 5), see `keyblock.order.promising`.
        fusion: shape (n_documents,), the fusion's promise of each document.
        fused: shape (n_documents,), the fused score with the model's logit; -inf where the model has not scored the document.
    """

    query: str
    names: list[str]
    features: NDArray[np.float64]
    fusion: NDArray[np.float64]
    fused: NDArray[np.float64]


Read = Callable[[Request], NDArray[np.bool_]]
"""Which documents of a request the model reads, shape (n_documents,)."""
Order = Callable[[Request], NDArray[np.intp]]
"""The numbers of a request's documents in reading order, shape (n_documents,)."""


class Orders:
    """Reading orders by the documents' promise. Raises ValueError for a cascade without a learned promise."""

    def __init__(self, cascade: Cascade) -> None:
        if cascade.promise is None:
            raise ValueError("the bundle's cascade has learned no promise: see keyblock-promise")
        self.learned_promise = cascade.promise

    def fusion(self, request: Request) -> NDArray[np.intp]:
        """The order by the fusion's promise."""
        return np.argsort(-request.fusion, kind="stable")

    def learned(self, request: Request) -> NDArray[np.intp]:
        """The order by the learned promise."""
        return np.argsort(-self.learned_promise.of(request.features), kind="stable")

    def both(self, request: Request) -> NDArray[np.intp]:
        """Both orders in turns, a document by the learned promise first."""
        return in_turns(self.learned_promise.of(request.features), request.fusion)


# --- the model's scores ---


def gather(options: argparse.Namespace) -> None:
    """Score with the model the splits that are not kept yet."""
    bundle, model = load_bundle(options.bundle), None
    for name in options.collections:
        missing = [split for split in splits(options) if not kept_path(options, name, split).exists()]
        if missing:
            model = model or GraphModel.open(bundle, options.provider, options.threads)
            preparation = Preparation(Collection(options.data / name), bundle.pipeline)
            for split in missing:
                write(list(score_sample(preparation, split, model, options)), kept_path(options, name, split))


def splits(options: argparse.Namespace) -> tuple[str, ...]:
    """The splits that are read: only dev for orders, which learn nothing here."""
    return ("dev",) if options.hurried else ("train", "dev")


def kept_path(options: argparse.Namespace, collection: str, split: str) -> Path:
    """The file that keeps the requests of a split. Each bundle and each sample has a directory of its own."""
    sampled = f"{options.queries or 'usual'}-{options.depth}-{options.seconds:g}"
    name = f"{collection}.{'hurried' if options.hurried else split}.npz"
    return Path(options.kept, options.bundle.resolve().name, sampled, name)


def score_sample(preparation: Preparation, split: str, model: Model, options: argparse.Namespace) -> Iterator[Request]:
    """Score a fixed sample of the split's queries, at least two, until `options.seconds` after the first stage have passed."""
    collection = preparation.collection
    run, began = first_stage_run(collection, split, options.depth), time.monotonic()
    for number, query in enumerate(sample(sorted(run), options.queries or QUERIES.get((collection.name, split), 100))):
        if number > 1 and time.monotonic() > began + options.seconds:
            return
        yield score_request(
            preparation, query, list(run[query])[: options.depth], model, HURRIED[-1] if options.hurried else options.depth
        )


def score_request(preparation: Preparation, query: str, names: list[str], model: Model, first: int) -> Request:
    """Score with the model the documents that are among the `first` by either promise."""
    pipeline = preparation.pipeline
    fusion, cascade = pipeline.config.fusion, pipeline.config.cascade
    selections = pipeline.select_each(preparation.query(query), [preparation.document(name) for name in names])
    evidence = np.stack([one.evidence for one in selections])
    features, promise = promising(evidence, [one.shared for one in selections]), fusion.promise(evidence)
    request, fused = Request(query, names, features, promise, np.full(len(names), -np.inf)), np.full(len(names), -np.inf)
    orders = Orders(cascade or Cascade())
    wanted = np.union1d(orders.fusion(request)[:first], orders.learned(request)[:first])
    logits = score_selections(pipeline, [selections[number] for number in wanted], model).logits
    fused[wanted] = fusion.fuse(logits, evidence[wanted])
    return request._replace(fused=fused)


def write(requests: Sequence[Request], path: Path) -> None:
    """Write requests to a file, with the documents of all of them in one row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {name: np.concatenate([getattr(one, name) for one in requests]) for name in ("names", "features", "fusion", "fused")}
    ends = np.cumsum([0, *(len(one.names) for one in requests)])
    np.savez_compressed(path, allow_pickle=False, query=np.asarray([one.query for one in requests]), ends=ends, **parts)


def read(path: Path) -> list[Request]:
    """Read the requests of a file that `write` made."""
    with np.load(path) as found:
        ends, parts = found["ends"], [found[name] for name in ("features", "fusion", "fused")]
        places = [slice(*place) for place in pairwise(ends.tolist())]
        return [
            Request(str(query), found["names"][place].tolist(), *(part[place] for part in parts))
            for query, place in zip(found["query"], places, strict=True)
        ]


# --- stops: the bound and the judge ---


class Border(NamedTuple):
    """A border between two batches, where reading may stop.

    Attributes:
        read: the number of documents before it.
        lead: how strongly the stop favours stopping here.
        complete: whether all results are among the documents read.
    """

    read: int
    lead: float
    complete: bool


class Bound(NamedTuple):
    """An upper bound of an unread document's fused score: a linear function of `bound_features`, with weights of shape (7,).

    Its lead is the score of the last result less the highest bound of an unread document.
    """

    weights: NDArray[np.float64]

    def borders(self, request: Request, order: NDArray[np.intp], results: int) -> Iterator[Border]:
        """See Stop."""
        bound, fused = (bound_features(request) @ self.weights)[order], request.fused[order]
        last = np.argsort(-fused, kind="stable")[:results].max()
        for count in range(BATCH, len(order), BATCH):
            if count >= results:
                lead = np.sort(fused[:count])[-results] - bound[count:].max()
                yield Border(count, float(lead), bool(last < count))


class Judge(NamedTuple):
    """Judges by more features than the bound, see `judge_features`. Its lead is the log odds that all results are read.

    Attributes:
        bound: the bound of unread documents.
        promise: the learned promise.
        mean: shape (n_features,), the mean of each feature over the borders it learned from.
        deviation: shape (n_features,), the standard deviation of each feature over them.
        weights: shape (n_features + 1,), of the scaled features and of the constant 1.
    """

    bound: Bound
    promise: Promise
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weights: NDArray[np.float64]

    def borders(self, request: Request, order: NDArray[np.intp], results: int) -> Iterator[Border]:
        """See Stop."""
        for border in self.bound.borders(request, order, results):
            features = judge_features(request, order, results, border, self.bound, self.promise)
            yield border._replace(lead=float((features - self.mean) / self.deviation @ self.weights[:-1] + self.weights[-1]))


class Stop(Protocol):
    """Says where reading may stop."""

    def borders(self, request: Request, order: NDArray[np.intp], results: int) -> Iterator[Border]:
        """The border after each batch but the last, from the first with at least `results` documents before it."""


def bound_features(request: Request) -> NDArray[np.float64]:
    """What the bound is computed from, shape (n_documents, 7): the features, the fusion's promise, and the constant 1."""
    return np.column_stack([request.features, request.fusion, np.ones(len(request.fusion))])


def judge_features(
    request: Request, order: NDArray[np.intp], results: int, border: Border, bound: Bound, promise: Promise
) -> NDArray[np.float64]:
    """The judge's features at a border, shape (n_features,): of the results so far, the unread documents, and the bound's fit."""
    count, fused, high = border.read, request.fused[order], (bound_features(request) @ bound.weights)[order]
    best, promised = np.sort(fused[:count])[::-1], promise.of(request.features)[order]
    unread, misses = promised[count:], fused[:count] - high[:count]
    return np.asarray(
        [
            *(border.lead, best[0], best[results - 1], best[results - 1] - best[min(results, count - 1)]),
            *(unread.max(), unread.max() - promised[0], unread.std(), np.sort(high[count:])[-5:].mean()),
            *(misses.mean(), misses.std(), np.log(count)),
        ]
    )


def fit_bound(requests: Sequence[Request]) -> Bound:
    """A linear quantile regression: the share QUANTILE of the fused scores is below it. Solves the dual, which is faster."""
    from scipy.optimize import linprog

    features, fused = np.concatenate([bound_features(one) for one in requests]), np.concatenate([one.fused for one in requests])
    features, fused = features[np.isfinite(fused)], fused[np.isfinite(fused)]
    scale = features.std(axis=0)
    scale[scale == 0] = 1.0
    balance = (1 - QUANTILE) * (features / scale).sum(axis=0)
    solved = linprog(-fused, A_eq=(features / scale).T, b_eq=balance, bounds=(0, 1), method="highs")
    return Bound(np.asarray(-solved.eqlin.marginals / scale))


def fit_judge(requests: Sequence[Request], order: Order, results: int, bound: Bound, promise: Promise) -> Judge:
    """A logistic regression over the borders of all requests."""
    from scipy.optimize import minimize

    ordered = [(one, order(one)) for one in requests]
    borders = [(one, by, border) for one, by in ordered for border in bound.borders(one, by, results)]
    features = np.stack([judge_features(one, by, results, border, bound, promise) for one, by, border in borders])
    sign = np.where([border.complete for *_, border in borders], 1.0, -1.0)
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    deviation[deviation == 0] = 1.0
    scaled = np.column_stack([(features - mean) / deviation, np.ones(len(features))])

    def loss(weights: NDArray[np.float64]) -> float:
        return float(np.logaddexp(0, -sign * (scaled @ weights)).mean() + PRIOR * np.square(weights[:-1]).sum())

    return Judge(bound, promise, mean, deviation, minimize(loss, np.zeros(scaled.shape[1])).x)


def slack(requests: Sequence[Request], order: Order, results: int, missed: float, stop: Stop) -> float:
    """The smallest slack at which at most the share `missed` of requests misses a result; inf where no finite slack does.

    A request misses a result if the lead exceeds the slack at a border that is not complete. The share counts one more request,
    which misses, so that it also holds for a new request, however requests are distributed (conformal prediction; the stop has
    learned from the same requests, but has few weights).
    """
    needed = sorted(
        max((border.lead for border in stop.borders(one, order(one), results) if not border.complete), default=-np.inf)
        for one in requests
    )
    place = int(np.ceil((1 - missed) * (len(needed) + 1))) - 1
    return needed[place] if place < len(needed) else np.inf


def stops_at(stop: Stop, least: float, request: Request, order: NDArray[np.intp], results: int) -> int:
    """How many documents are read until the lead exceeds `least`: all of them if it never does."""
    borders = stop.borders(request, order, results)
    return next((border.read for border in borders if border.lead > least), len(order))


# --- the comparison ---


def policies(train: Mapping[str, Sequence[Request]], name: str, cascade: Cascade, results: int) -> dict[str, Read]:
    """Every policy of what the model reads, by its label.

    Stops learn from the train requests of all collections, and once more from those of all collections but `name`.
    """
    orders = Orders(cascade)
    found: dict[str, Read] = {RULE: by_rule(cascade, results), AT_ONCE: at_once(orders.both, results)}
    found |= {f"the first {count}": first(orders.both, count) for count in FIRST}
    for label, names in {"": list(train), ", learned without it": [other for other in train if other != name]}.items():
        requests = [request for other in names for request in train[other]]
        for kind, stop in fit_stops(requests, orders, results).items() if requests else ():
            for missed in MISSED:
                least = slack(requests, orders.both, results, missed, stop)
                found[f"{kind}, {missed:.0%}{label}"] = until(stop, least, orders.both, results)
    return found


def fit_stops(requests: Sequence[Request], orders: Orders, results: int) -> dict[str, Stop]:
    """Learn a bound and a judge from these requests."""
    bound = fit_bound(requests)
    return {"bound": bound, "judged": fit_judge(requests, orders.both, results, bound, orders.learned_promise)}


def by_rule(cascade: Cascade, results: int) -> Read:
    """Read what the bundle's cascade reads."""

    def reads(request: Request) -> NDArray[np.bool_]:
        promises = [request.fusion] if cascade.promise is None else [request.fusion, cascade.promise.of(request.features)]
        return np.asarray(~np.all([cascade.below_the_bar(promise, results) for promise in promises], axis=0))

    return reads


def first(order: Order, count: int) -> Read:
    """Read the first `count` documents of an order."""
    return lambda request: np.isin(np.arange(len(request.names)), order(request)[:count])


def at_once(order: Order, results: int) -> Read:
    """Stop as soon as the model has read all results that it would find by reading everything: no stop can be better."""

    def reads(request: Request) -> NDArray[np.bool_]:
        place = np.argsort(order(request))
        return np.asarray(place <= place[np.argsort(-request.fused, kind="stable")[:results]].max())

    return reads


def until(stop: Stop, least: float, order: Order, results: int) -> Read:
    """Read batch by batch until the lead exceeds `least`."""
    return lambda request: first(order, stops_at(stop, least, request, order(request), results))(request)


def ranked(request: Request, read: NDArray[np.bool_]) -> dict[str, float]:
    """The run of a request: documents that are read by their fused score, below them the unread ones by the fusion's promise."""
    order = np.lexsort((-np.where(read, request.fused, request.fusion), ~read))
    return {request.names[number]: -float(place) for place, number in enumerate(order)}


def quality(collection: Collection, requests: Sequence[Request], policy: Read, results: int) -> Values:
    """The nDCG and RR at `results`, by query."""
    run: Run = {one.query: ranked(one, policy(one)) for one in requests}
    return per_query(collection.qrels, run, list(run), [nDCG @ results, RR @ results])


def complete(requests: Sequence[Request], policy: Read, results: int) -> float:
    """The share of requests whose results are the same as if the model read every document."""
    return float(np.mean([policy(one)[np.argsort(-one.fused, kind="stable")[:results]].all() for one in requests]))


def everything(request: Request) -> NDArray[np.bool_]:
    """Read all documents."""
    return np.ones(len(request.names), np.bool_)


def compare_stops(options: argparse.Namespace, bundle: Bundle) -> str:
    """The table of policies: a row for each collection, number of results and policy."""
    cascade = bundle.manifest.pipeline.cascade or Cascade()
    train = {name: read(kept_path(options, name, "train")) for name in options.collections}
    rows = [["dev", "queries", "results", "the model reads", "documents", "complete", "nDCG", "p", "RR", "p"]]
    for name in options.collections:
        collection, dev = Collection(options.data / name), read(kept_path(options, name, "dev"))
        for results in options.results:
            full = quality(collection, dev, everything, results)
            for label, policy in policies(train, name, cascade, results).items():
                documents = f"{np.mean([policy(one).sum() for one in dev]):.1f}"
                cells = [name, f"{len(dev)}", f"{results}", label, documents, f"{complete(dev, policy, results):.1%}"]
                rows.append([*cells, *differences(quality(collection, dev, policy, results), full)])
    return markdown(rows)


def differences(own: Values, reference: Values) -> Iterator[str]:
    """For each measure the difference of its mean from that of the reference, and p."""
    for name, values in own.items():
        yield f"{np.mean(list(values.values())) - np.mean(list(reference[name].values())):+.4f}"
        yield p_text(paired_t_test(values, reference[name]))


def compare_orders(options: argparse.Namespace, bundle: Bundle) -> str:
    """The table of orders: rows for each collection and number of documents read, each order against that of the fusion."""
    orders = Orders(bundle.manifest.pipeline.cascade or Cascade())
    rows = [["dev", "queries", "the model reads the first", "by", "nDCG", "p", "RR", "p"]]
    for name in options.collections:
        collection, requests = Collection(options.data / name), read(kept_path(options, name, "dev"))
        for count in HURRIED:
            by_fusion = quality(collection, requests, first(orders.fusion, count), 10)
            means = [cell for values in by_fusion.values() for cell in (f"{np.mean(list(values.values())):.4f}", "")]
            cells = [name, f"{len(requests)}", f"{count}"]
            rows.append([*cells, "the fusion's promise", *means])
            for label, order in {"the learned promise": orders.learned, "both in turns": orders.both}.items():
                rows.append([*cells, label, *differences(quality(collection, requests, first(order, count), 10), by_fusion)])
    return markdown(rows)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.stopping", description="Documents read and quality where a learned bound stops.")
    made.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the directory of the collections")
    made.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS), help="these collections")
    made.add_argument("--results", nargs="+", type=int, default=list(RESULTS), help="numbers of results of a request")
    made.add_argument("--hurried", action="store_true", help="measure orders under a deadline instead")
    made.add_argument("--queries", type=int, help="a fixed sample of each collection and split; 300 and 400 of squad-far, else 100")
    made.add_argument("--seconds", type=float, default=1e9, help="no query of a split is begun later than this")
    made.add_argument("--depth", type=int, default=100, help="candidates of a query: the first stage's best")
    made.add_argument("--bundle", type=Path, default=DEFAULT, help="the bundle whose pipeline and model are measured")
    made.add_argument("--provider", default="auto", help="the provider that computes the model")
    made.add_argument("--threads", type=int, default=1, help="threads of the model")
    made.add_argument("--kept", type=Path, default=Path("build") / "stopping", help="the directory that keeps the model's scores")
    return made


def main(options: argparse.Namespace) -> None:
    """Measure, and print a table."""
    gather(options)
    print((compare_orders if options.hurried else compare_stops)(options, load_bundle(options.bundle)))


if __name__ == "__main__":
    main(parser().parse_args())
