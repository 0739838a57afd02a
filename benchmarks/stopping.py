"""When the model may stop: it reads documents in the order of promise, a batch at a time, until no other can be a result. On dev.

    python -m benchmarks.stopping --data DATA             a bound learned on train, beside the cascade and fixed numbers
    python -m benchmarks.stopping --data DATA --hurried   which order finds most where a deadline lets the model read ten or twenty

What is unread cannot be a result where a bound of its score is below the last result so far. The bound is a quantile of the fused
score given what selection knows (a quantile regression). A judge knows more: a logistic regression says of each border between two
batches whether all results are read. Both stop where they lead by more than a slack, by which at most so large a share of train
requests misses a result; so Li et al. (EMNLP 2022) cut candidates. What the model says is kept in `--kept`, and asked again for
another bundle, sample or time.
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

QUERIES = {("squad-far", "train"): 300, ("squad-far", "dev"): 400}  # of the others 100
RESULTS = (10, 3, 1)
BATCH = 8  # documents of 128 tokens; a CPU takes no longer for each than in larger batches
FIRST = (8, 12, 16, 20)
MISSED = (0.05, 0.02)  # of train requests, in which a result may be missed
QUANTILE = 0.95
HURRIED = (10, 20)  # documents that a deadline leaves time for
RULE, AT_ONCE = "the cascade", "as soon as the results are read"
PRIOR = 1e-3  # of a squared weight


class Request(NamedTuple):
    """A query's candidates.

    Attributes:
        query: its id.
        names: of the documents, in the order given.
        features: shape (n_documents, 5), see `keyblock.order.promising`.
        fusion: shape (n_documents,), what the fusion promises.
        fused: shape (n_documents,), the score with the model's logit; -inf where the model was not asked.
    """

    query: str
    names: list[str]
    features: NDArray[np.float64]
    fusion: NDArray[np.float64]
    fused: NDArray[np.float64]


Read = Callable[[Request], NDArray[np.bool_]]
"""Which documents of a request the model reads, shape (n_documents,)."""
Order = Callable[[Request], NDArray[np.intp]]
"""A request's documents, shape (n_documents,), the first to be read first."""


class Orders:
    """Orders by what documents promise."""

    def __init__(self, cascade: Cascade) -> None:
        if cascade.promise is None:
            raise ValueError("the bundle's cascade has learned no promise: see keyblock-promise")
        self.learns = cascade.promise

    def fusion(self, request: Request) -> NDArray[np.intp]:
        """By the fusion's promise."""
        return np.argsort(-request.fusion, kind="stable")

    def learned(self, request: Request) -> NDArray[np.intp]:
        """By the learned one."""
        return np.argsort(-self.learns.of(request.features), kind="stable")

    def both(self, request: Request) -> NDArray[np.intp]:
        """In turns by the learned one and the fusion's."""
        return in_turns(self.learns.of(request.features), request.fusion)


# --- what the model says ---


def gather(options: argparse.Namespace) -> None:
    """Ask the model about what is missing."""
    bundle, model = load_bundle(options.bundle), None
    for name in options.collections:
        due = [split for split in splits(options) if not kept(options, name, split).exists()]
        if due:
            model = model or GraphModel.open(bundle, options.provider, options.threads)
            preparation = Preparation(Collection(options.data / name), bundle.pipeline)
            for split in due:
                write(list(asked(preparation, split, model, options)), kept(options, name, split))


def splits(options: argparse.Namespace) -> tuple[str, ...]:
    """That are read: orders are only measured."""
    return ("dev",) if options.hurried else ("train", "dev")


def kept(options: argparse.Namespace, collection: str, split: str) -> Path:
    """Where the requests of a split are: other bundles' and samples' elsewhere."""
    sampled = f"{options.queries or 'usual'}-{options.depth}-{options.seconds:g}"
    name = f"{collection}.{'hurried' if options.hurried else split}.npz"
    return Path(options.kept, options.bundle.resolve().name, sampled, name)


def asked(preparation: Preparation, split: str, model: Model, options: argparse.Namespace) -> Iterator[Request]:
    """Requests of a fixed sample, as many as there is time for once the first stage is done: two at least."""
    collection = preparation.collection
    run, began = first_stage_run(collection, split, options.depth), time.monotonic()
    for number, query in enumerate(sample(sorted(run), options.queries or QUERIES.get((collection.name, split), 100))):
        if number > 1 and time.monotonic() > began + options.seconds:
            return
        yield said(preparation, query, list(run[query])[: options.depth], model, HURRIED[-1] if options.hurried else options.depth)


def said(preparation: Preparation, query: str, names: list[str], model: Model, first: int) -> Request:
    """What the model says of those that are among the first by one promise or the other."""
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
    """Keep requests, their documents one behind the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {name: np.concatenate([getattr(one, name) for one in requests]) for name in ("names", "features", "fusion", "fused")}
    ends = np.cumsum([0, *(len(one.names) for one in requests)])
    np.savez_compressed(path, allow_pickle=False, query=np.asarray([one.query for one in requests]), ends=ends, **parts)


def read(path: Path) -> list[Request]:
    """Requests that were kept."""
    with np.load(path) as found:
        ends, parts = found["ends"], [found[name] for name in ("features", "fusion", "fused")]
        places = [slice(*of) for of in pairwise(ends.tolist())]
        return [
            Request(str(query), found["names"][of].tolist(), *(part[of] for part in parts))
            for query, of in zip(found["query"], places, strict=True)
        ]


# --- what stops ---


class Border(NamedTuple):
    """A place where reading may stop.

    Attributes:
        read: documents before it.
        lead: how much speaks for stopping.
        complete: whether all results are read.
    """

    read: int
    lead: float
    complete: bool


class Bound(NamedTuple):
    """How high an unread document's fused score may be, by weights of shape (7,); its lead is the last result's over it."""

    weights: NDArray[np.float64]

    def borders(self, request: Request, order: NDArray[np.intp], results: int) -> Iterator[Border]:
        """See Stop."""
        bound, fused = (described(request) @ self.weights)[order], request.fused[order]
        last = np.argsort(-fused, kind="stable")[:results].max()
        for count in range(BATCH, len(order), BATCH):
            if count >= results:
                lead = np.sort(fused[:count])[-results] - bound[count:].max()
                yield Border(count, float(lead), bool(last < count))


class Judge(NamedTuple):
    """Judges by more than the bound, see `seen`; its lead is the log odds that all results are read.

    Attributes:
        bound: of unread documents.
        promise: the learned one.
        mean, deviation: shape (n_seen,).
        weights: shape (n_seen + 1,), of what is seen, scaled, and of 1.
    """

    bound: Bound
    promise: Promise
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weights: NDArray[np.float64]

    def borders(self, request: Request, order: NDArray[np.intp], results: int) -> Iterator[Border]:
        """See Stop."""
        for border in self.bound.borders(request, order, results):
            known = seen(request, order, results, border, self.bound, self.promise)
            yield border._replace(lead=float((known - self.mean) / self.deviation @ self.weights[:-1] + self.weights[-1]))


class Stop(Protocol):
    """Says where reading may stop."""

    def borders(self, request: Request, order: NDArray[np.intp], results: int) -> Iterator[Border]:
        """Behind each batch but the last, once there are enough results."""


def described(request: Request) -> NDArray[np.float64]:
    """What the bound knows of each document, shape (n_documents, 7)."""
    return np.column_stack([request.features, request.fusion, np.ones(len(request.fusion))])


def seen(
    request: Request, order: NDArray[np.intp], results: int, border: Border, bound: Bound, promise: Promise
) -> NDArray[np.float64]:
    """What a judge knows at a border, shape (n_seen,): of the results so far, of what is unread, and how well the bound fits."""
    count, fused, high = border.read, request.fused[order], (described(request) @ bound.weights)[order]
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
    """A linear quantile regression: so large a share of the fused scores is below it. Its dual, which is solved faster."""
    from scipy.optimize import linprog

    known, fused = np.concatenate([described(one) for one in requests]), np.concatenate([one.fused for one in requests])
    known, fused = known[np.isfinite(fused)], fused[np.isfinite(fused)]
    scale = known.std(axis=0)
    scale[scale == 0] = 1.0
    balance = (1 - QUANTILE) * (known / scale).sum(axis=0)
    solved = linprog(-fused, A_eq=(known / scale).T, b_eq=balance, bounds=(0, 1), method="highs")
    return Bound(np.asarray(-solved.eqlin.marginals / scale))


def fit_judge(requests: Sequence[Request], order: Order, results: int, bound: Bound, promise: Promise) -> Judge:
    """A logistic regression over the borders of all requests."""
    from scipy.optimize import minimize

    places = [(one, order(one)) for one in requests]
    found = [(one, at, border) for one, at in places for border in bound.borders(one, at, results)]
    known = np.stack([seen(one, at, results, border, bound, promise) for one, at, border in found])
    sign = np.where([border.complete for *_, border in found], 1.0, -1.0)
    mean, deviation = known.mean(axis=0), known.std(axis=0)
    deviation[deviation == 0] = 1.0
    scaled = np.column_stack([(known - mean) / deviation, np.ones(len(known))])

    def loss(weights: NDArray[np.float64]) -> float:
        return float(np.logaddexp(0, -sign * (scaled @ weights)).mean() + PRIOR * np.square(weights[:-1]).sum())

    return Judge(bound, promise, mean, deviation, minimize(loss, np.zeros(scaled.shape[1])).x)


def slack(requests: Sequence[Request], order: Order, results: int, missed: float, stop: Stop) -> float:
    """The least that a lead must exceed so that at most such a share of requests misses a result; inf where nothing could stop.

    The share counts one request more than there are, which misses: so it holds for a new one, too, however requests are distributed
    (conformal prediction; what stops has learned from the same requests, but few weights).
    """
    needed = sorted(
        max((border.lead for border in stop.borders(one, order(one), results) if not border.complete), default=-np.inf)
        for one in requests
    )
    place = int(np.ceil((1 - missed) * (len(needed) + 1))) - 1
    return needed[place] if place < len(needed) else np.inf


def stops_at(stop: Stop, least: float, request: Request, order: NDArray[np.intp], results: int) -> int:
    """How many documents are read before the lead is more than this."""
    borders = stop.borders(request, order, results)
    return next((border.read for border in borders if border.lead > least), len(order))


# --- what is compared ---


def ways(taught: Mapping[str, Sequence[Request]], name: str, cascade: Cascade, results: int) -> dict[str, Read]:
    """What may decide what the model reads; stops that have learned from all collections, and from the others than this one."""
    orders = Orders(cascade)
    found: dict[str, Read] = {RULE: by_rule(cascade, results), AT_ONCE: at_once(orders.both, results)}
    found |= {f"the first {count}": first(orders.both, count) for count in FIRST}
    for label, names in {"": list(taught), ", learned without it": [one for one in taught if one != name]}.items():
        requests = [request for one in names for request in taught[one]]
        for kind, stop in stops(requests, orders, results).items() if requests else ():
            for missed in MISSED:
                least = slack(requests, orders.both, results, missed, stop)
                found[f"{kind}, {missed:.0%}{label}"] = until(stop, least, orders.both, results)
    return found


def stops(requests: Sequence[Request], orders: Orders, results: int) -> dict[str, Stop]:
    """Both kinds, learned from these requests."""
    bound = fit_bound(requests)
    return {"bound": bound, "judged": fit_judge(requests, orders.both, results, bound, orders.learns)}


def by_rule(cascade: Cascade, results: int) -> Read:
    """What the bundle's cascade does not spare."""

    def reads(request: Request) -> NDArray[np.bool_]:
        promises = [request.fusion] if cascade.promise is None else [request.fusion, cascade.promise.of(request.features)]
        return np.asarray(~np.all([cascade.below_the_bar(promise, results) for promise in promises], axis=0))

    return reads


def first(order: Order, count: int) -> Read:
    """So many documents."""
    return lambda request: np.isin(np.arange(len(request.names)), order(request)[:count])


def at_once(order: Order, results: int) -> Read:
    """What nothing could beat: it stops as soon as the model has read all that it would rank first."""

    def reads(request: Request) -> NDArray[np.bool_]:
        place = np.argsort(order(request))
        return np.asarray(place <= place[np.argsort(-request.fused, kind="stable")[:results]].max())

    return reads


def until(stop: Stop, least: float, order: Order, results: int) -> Read:
    """Batch by batch until the lead is more than this."""
    return lambda request: first(order, stops_at(stop, least, request, order(request), results))(request)


def ranked(request: Request, read: NDArray[np.bool_]) -> dict[str, float]:
    """The run of a request: what is read by its fused score, below it the others by the fusion's promise."""
    order = np.lexsort((-np.where(read, request.fused, request.fusion), ~read))
    return {request.names[number]: -float(place) for place, number in enumerate(order)}


def quality(collection: Collection, requests: Sequence[Request], way: Read, results: int) -> Values:
    """The measures at so many results, by query."""
    run: Run = {one.query: ranked(one, way(one)) for one in requests}
    return per_query(collection.qrels, run, list(run), [nDCG @ results, RR @ results])


def complete(requests: Sequence[Request], way: Read, results: int) -> float:
    """The share of requests whose results are those of reading all."""
    return float(np.mean([way(one)[np.argsort(-one.fused, kind="stable")[:results]].all() for one in requests]))


def everything(request: Request) -> NDArray[np.bool_]:
    """All documents are read."""
    return np.ones(len(request.names), np.bool_)


def compared(options: argparse.Namespace, bundle: Bundle) -> str:
    """A row a collection, number of results and way."""
    cascade = bundle.manifest.pipeline.cascade or Cascade()
    taught = {name: read(kept(options, name, "train")) for name in options.collections}
    rows = [["dev", "queries", "results", "the model reads", "documents", "complete", "nDCG", "p", "RR", "p"]]
    for name in options.collections:
        collection, measured = Collection(options.data / name), read(kept(options, name, "dev"))
        for results in options.results:
            every = quality(collection, measured, everything, results)
            for label, way in ways(taught, name, cascade, results).items():
                read_of = f"{np.mean([way(one).sum() for one in measured]):.1f}"
                about = [name, f"{len(measured)}", f"{results}", label, read_of, f"{complete(measured, way, results):.1%}"]
                rows.append([*about, *beside(quality(collection, measured, way, results), every)])
    return markdown(rows)


def beside(own: Values, every: Values) -> Iterator[str]:
    """Of each measure the difference of the means and p."""
    for name, values in own.items():
        yield f"{np.mean(list(values.values())) - np.mean(list(every[name].values())):+.4f}"
        yield p_text(paired_t_test(values, every[name]))


def hurried(options: argparse.Namespace, bundle: Bundle) -> str:
    """A row a collection and number of documents that are read, the orders beside that of the fusion."""
    orders = Orders(bundle.manifest.pipeline.cascade or Cascade())
    rows = [["dev", "queries", "the model reads the first", "by", "nDCG", "p", "RR", "p"]]
    for name in options.collections:
        collection, requests = Collection(options.data / name), read(kept(options, name, "dev"))
        for count in HURRIED:
            usual = quality(collection, requests, first(orders.fusion, count), 10)
            means = [cell for values in usual.values() for cell in (f"{np.mean(list(values.values())):.4f}", "")]
            about = [name, f"{len(requests)}", f"{count}"]
            rows.append([*about, "the fusion's promise", *means])
            for label, order in {"the learned promise": orders.learned, "both in turns": orders.both}.items():
                rows.append([*about, label, *beside(quality(collection, requests, first(order, count), 10), usual)])
    return markdown(rows)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.stopping", description="Documents read and quality where a learned bound stops.")
    made.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the directory of the collections")
    made.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS), help="these collections")
    made.add_argument("--results", nargs="+", type=int, default=list(RESULTS), help="that requests are about")
    made.add_argument("--hurried", action="store_true", help="measure orders under a deadline instead")
    made.add_argument("--queries", type=int, help="of a collection and split, a fixed sample; 300 and 400 of squad-far, else 100")
    made.add_argument("--seconds", type=float, default=1e9, help="after which no other query of a split is begun")
    made.add_argument("--depth", type=int, default=100, help="candidates of a query, the first stage's best")
    made.add_argument("--bundle", type=Path, default=DEFAULT, help="whose pipeline and model")
    made.add_argument("--provider", default="auto", help="computes the model")
    made.add_argument("--threads", type=int, default=1, help="of the model")
    made.add_argument("--kept", type=Path, default=Path("build") / "stopping", help="where it is kept what the model says")
    return made


def main(options: argparse.Namespace) -> None:
    """Measure, and print a table."""
    gather(options)
    print((hurried if options.hurried else compared)(options, load_bundle(options.bundle)))


if __name__ == "__main__":
    main(parser().parse_args())
