"""CPU time of smaller or coarser models, measured in turns, and their quality on dev against the embedded model.

    python -m benchmarks.smaller --speed                              fewer layers and other arithmetic, by CPU time
    ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks.smaller --speed --without bf16     as a CPU without AVX-512 computes it
    python -m benchmarks.smaller --data DATA BUNDLE:int8-static       quality of a bundle in an arithmetic
    python -m benchmarks.smaller --data DATA BUNDLE --share 0.5 --then 0.2 0.1     it reads half, and the embedded model the best

Layers are left out only for --speed: the scores of such a model have no value. CPU time is measured, not wall time, so that other
work on the machine matters less. Quality is that of the fused score, as in the service, with no document spared.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptive import COLLECTIONS, DEFAULT, MEASURES, cell
from benchmarks.spared import best
from benchmarks.systems import ROOT
from export.exporter import FIXING, SAMPLE
from export.graphs import Graphs, export_graph_of
from export.options import VariantKind, WeightPrecision
from export.static_quantization import batches_of
from export.verification import Dev
from keyblock.bundle import GRAPH_FILE, Bundle, load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider, ProviderError, resolve
from keyblock.runtime.session import Session
from training.collections.collection import Collection
from training.declarations import EncoderShape
from training.evaluation.evaluate import Evaluation, evaluate, evaluate_run, sample
from training.evaluation.ranking import LocalRanker, changed
from training.evaluation.significance import p_text, paired_t_test
from training.evaluation.tables import markdown
from training.examples.preparation import Preparation
from training.models.cross_encoder import CrossEncoder
from training.models.reshaping import reshape
from training.models.starting import read_ranker
from training.recipe import backbone_path

BATCH, LENGTH = 32, 128
LAYERS = {4: (0, 2, 4, 5), 3: (0, 3, 5), 2: (0, 5)}
WAYS = (
    (Provider.OPENVINO, Precision.BF16),
    (Provider.OPENVINO, Precision.FP32),
    (Provider.OPENVINO, Precision.INT8_STATIC),
    (Provider.CPU, Precision.FP32),
    (Provider.CPU, Precision.INT8),
)
Inputs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def sessions(bundle: Bundle, folder: Path, ways: Sequence[tuple[Provider, Precision]] = WAYS) -> Iterator[tuple[str, Session]]:
    """The embedded model's graph in each arithmetic that runs here, then with fewer layers; the first is the reference."""
    whole, bf16 = ranker_of(bundle), (Provider.OPENVINO, Precision.BF16) in ways
    plain = export_graph_of(whole, folder / "plain")
    graphs = {precision: plain.served(folder / precision, WeightPrecision.FP32) for precision in (Precision.BF16, Precision.FP32)}
    read = Dev.build(Collection(SAMPLE), bundle.pipeline, FIXING, FIXING)
    first = graphs[Precision.FP32].open(bundle.tokenizer, Provider.CPU)
    selections, _ = read.selections(first, LENGTH, FIXING)
    batches = batches_of([packed for one in selections for packed in one.sequences], bundle.tokenizer)
    for kind in (VariantKind.INT8, VariantKind.INT8_STATIC):
        graphs[Precision(kind.value)] = plain.variant(kind, folder / kind.value, batches)
    for provider, precision in ways:
        yield from opened(f"6 layers, {provider} {precision}", graphs[precision], provider, precision, bf16)
    for count, kept in LAYERS.items():
        smaller = ranker_of(bundle)
        reshape(smaller.encoder, EncoderShape(layers=kept))
        cut = export_graph_of(smaller, folder / f"{count} plain").served(folder / f"{count}", WeightPrecision.FP32)
        yield from opened(f"{count} layers, {' '.join(ways[0])}", cut, *ways[0], bf16)


def ranker_of(bundle: Bundle) -> CrossEncoder:
    """The bundle's ranker in PyTorch. Raises ValueError for one of another family."""
    model = read_ranker(bundle.path, backbone_path(bundle.manifest.provenance["recipe"]["backbone"]), attention="eager")
    if not isinstance(model, CrossEncoder):
        raise ValueError(f"{bundle.path}: holds a {model.family['name']}; layers are left out of a cross_encoder")
    return model


def opened(name: str, graphs: Graphs, provider: Provider, precision: Precision, bf16: bool) -> Iterator[tuple[str, Session]]:
    """The session's name and the session, with one thread; nothing but a printed line if this machine cannot compute it.

    Without `bf16`, an 8-bit graph computes its other parts in fp32: oneDNN would emulate bf16 when told that the CPU has none.
    """
    try:
        choice = resolve(provider, threads=1, precision=precision, variants=[precision])
    except ProviderError as error:
        print(f"{name}: {error}", flush=True)
        return
    if not bf16 and provider is Provider.OPENVINO:
        choice = resolve(provider, threads=1, precision=Precision.FP32)
    yield name, Session(graphs.folder / GRAPH_FILE, choice, threads=1)


def in_turns(timed: Sequence[tuple[str, Session]], rounds: int, clock: Callable[[], float] = time.process_time) -> list[list[str]]:
    """Rows of milliseconds a sequence and the speed-up over the first session, as medians over rounds."""
    random = np.random.default_rng(0)
    inputs: Inputs = (random.integers(1000, 30000, (BATCH, LENGTH)), np.zeros((BATCH, LENGTH), int), np.ones((BATCH, LENGTH), int))
    seconds: dict[str, list[float]] = {name: [] for name, _ in timed}
    for number in range(rounds + 1):
        shift = number % len(timed)
        for name, session in (*timed[shift:], *timed[:shift]):
            started = clock()
            session.score(*inputs)
            seconds[name].append(clock() - started)
    first = seconds[timed[0][0]][1:]  # the first round warms up
    rows = []
    for name, taken in seconds.items():
        times = statistics.median(a / b for a, b in zip(first, taken[1:], strict=True))
        rows.append([name, f"{1000 * statistics.median(taken[1:]) / BATCH:.2f}", f"{times:.2f}"])
    return rows


def speed(options: argparse.Namespace) -> None:
    """Print the table of CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        ways = [way for way in WAYS if way[1] not in options.without]
        timed = list(sessions(load_bundle(options.bundle), Path(folder), ways))
        print(markdown([["", "ms a sequence", "times as fast"], *in_turns(timed, options.rounds)]))


def quality(options: argparse.Namespace) -> None:
    """Print the table of dev quality, after each collection."""
    head = ["dev", "queries", "model", *(part for measure in MEASURES for part in (measure, "p"))]
    rows = []
    for name in options.collections:
        collection = Collection(options.data / name)
        found = [measured(f"{options.bundle}:bf16", collection, options)]
        found += [measured(system, collection, options, options.share) for system in options.systems]
        stages = [two_stages(one, found[0], collection, share) for one in found[1:] for share in options.then]
        rows += [row(one, found[0]) for one in (*found, *stages)]
        print(markdown([head, *rows]), flush=True)


def measured(system: str, collection: Collection, options: argparse.Namespace, share: float = 1.0) -> Evaluation:
    """Measure a bundle, given as PATH:PRECISION, on a fixed sample of dev, where it reads a share of the documents."""
    path, _, precision = system.partition(":")
    bundle = load_bundle(path)
    model = GraphModel.open(bundle, options.provider, 1, precision=precision or Precision.AUTO)
    run = collection.run("dev")
    queries = sample(sorted(run), options.queries)
    candidates = {query: dict(list(run[query].items())[: options.depth]) for query in queries}
    pipeline = changed(bundle.pipeline, {"cascade": best(share)["cascade"] if share < 1 else None}, bundle.path)
    ranker = LocalRanker(system, Preparation(collection, pipeline), model)
    evaluation = evaluate(ranker, collection, queries, candidates, progress=False)
    evaluation.name = f"{cell(collection.name, 'dev')}|{system}"
    return evaluation


def two_stages(own: Evaluation, first: Evaluation, collection: Collection, share: float) -> Evaluation:
    """Reorder the best share of the documents of `own` by `first`; the other documents keep their order below."""
    run = {}
    for query, scores in own.run.items():
        order = list(scores)
        top = order[: math.ceil(share * len(order))]
        again = sorted(top, key=first.run[query].__getitem__, reverse=True)
        run[query] = {name: float(-rank) for rank, name in enumerate((*again, *order[len(top) :]))}
    return evaluate_run(f"{own.name}, best {share:.0%} by the first", run, collection, list(own.values[MEASURES[0]]))


def row(own: Evaluation, first: Evaluation) -> list[str]:
    """The cells of one model: the first model's means, or the differences from them."""
    place, _, system = own.name.partition("|")
    cells = [place, f"{len(own.values[MEASURES[0]])}", system]
    means = {measure: statistics.fmean(own.values[measure].values()) for measure in MEASURES}
    if own is first:
        return [*cells, *(part for measure in MEASURES for part in (f"{means[measure]:.4f}", ""))]
    pairs = ((measure, own.values[measure], first.values[measure]) for measure in MEASURES)
    tests = ((means[measure] - statistics.fmean(theirs.values()), paired_t_test(ours, theirs)) for measure, ours, theirs in pairs)
    return [*cells, *(part for difference, p in tests for part in (f"{difference:+.4f}", p_text(p)))]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.smaller", description="CPU time and quality of smaller and coarser models.")
    made.add_argument("systems", nargs="*", help="PATH:PRECISION of bundles that are measured beside --bundle in bf16")
    made.add_argument("--speed", action="store_true", help="only CPU time of graphs in turns")
    made.add_argument("--rounds", type=int, default=7, help="turns of --speed")
    made.add_argument(
        "--without", type=Precision, nargs="+", default=[], help="arithmetic that --speed leaves out: what is imitated is slow"
    )
    made.add_argument("--bundle", type=Path, default=DEFAULT, help="whose model the others stand beside")
    made.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the directory of the collections")
    made.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS), help="these collections")
    made.add_argument("--queries", type=int, default=100, help="dev queries of each collection, a fixed sample")
    made.add_argument("--depth", type=int, default=100, help="candidates of a query, the first stage's best")
    made.add_argument("--provider", default="auto", help="computes the models")
    made.add_argument("--share", type=float, default=1.0, help="of the documents, by promise, that the models beside --bundle read")
    made.add_argument("--then", type=float, nargs="+", default=[], help="the best share of those, ordered by --bundle")
    return made


if __name__ == "__main__":
    given = parser().parse_args()
    (speed if given.speed else quality)(given)
