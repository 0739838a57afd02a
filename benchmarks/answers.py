"""Do scores mean something across queries, and do spans hold the answer? Calibration, thresholds, coverage and pruning.

    python -m benchmarks.answers --data DATA --kept KEPT                            # dev and test of the embedded bundle
    python -m benchmarks.answers --data DATA --kept KEPT --bundle OTHER --split dev
    python -m benchmarks.answers --data DATA --kept KEPT --split dev --provider openvino --precision int8-static --most 1

The first table is for the bundle itself. For the last table, fusion and threshold are fitted for each collection on dev of the
other collections. This is what users can expect on their own texts, except that the model has seen all collections. KEPT keeps
the model's scores.
"""

import argparse
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from keyblock.bundle import Bundle, load_bundle
from keyblock.evidence import FEATURES, Fusion
from keyblock.order import candidate
from keyblock.runtime.model import GraphModel
from keyblock.span_scores import SpanScores
from keyblock.spans import THRESHOLD, Sentence, Span, spans
from training.collections.collection import Collection
from training.collections.collection import Span as GoldSpan
from training.collections.first_stage import first_stage_run
from training.evaluation.answers import at_threshold, auroc, best_threshold, top_gap, top_scores
from training.evaluation.calibration import LOWEST, DevScores, calibration_error, calibration_gap, fit_fusion
from training.evaluation.evaluate import sample
from training.evaluation.ranking import LocalRanker, bundle_ranker
from training.evaluation.span_fit import ReadDocument, fit_spans, span_probabilities
from training.evaluation.tables import markdown

COLLECTIONS = ("squad-far", "squad-articles", "qmsum", "evidence")
SPAN_DEPTH = 10  # first results of a query whose spans are judged
MOST = 3  # spans of a document that may hold the gold passage
LEAST = 5  # queries or sentences that a point of a picture needs
SHARES = (0.05, 0.1, 0.2, 0.4)  # shares of a document's tokens that are passed on


@dataclass
class SplitScores:
    """A model's scores of one split.

    Attributes:
        scores: features of all candidates.
        read: the sentences of the relevant documents and the first candidates, for queries with gold passages.
    """

    scores: DevScores
    read: list[ReadDocument]


Said = SplitScores  # the class's name in files that were kept before it was renamed


def score_split(bundle: Bundle, model: GraphModel, path: Path, split: str, queries: int, depth: int) -> SplitScores:
    """Score a sample of a split's queries."""
    collection = Collection(path)
    ranker = bundle_ranker(bundle, model, collection)
    run = first_stage_run(collection, split, depth)
    scored = SplitScores(DevScores(collection, {}, {}), [])
    for query in sample(sorted(run), queries):
        _score(ranker, query, list(run[query])[:depth], scored)
    return scored


def _score(ranker: LocalRanker, query: str, documents: list[str], scored: SplitScores) -> None:
    logits, selections, marks = ranker.score(query, documents)
    finite = np.maximum(logits.astype(np.float64), LOWEST)
    scored.scores.features[query] = np.column_stack([finite, np.stack([s.evidence for s in selections])])
    scored.scores.documents[query] = documents
    gold = [bool(ranker.preparation.gold(query, document)) for document in documents]
    if marks is None or not any(gold):
        return
    for number, document in enumerate(documents):
        if (number < SPAN_DEPTH or gold[number]) and selections[number].sequences:
            one = candidate(ranker.preparation.document(document), selections[number])
            scored.read.append(ReadDocument.of(ranker, query, document, one, float(finite[number]), marks[number]))


def kept_scores(options: argparse.Namespace, bundle: Bundle, name: str, split: str) -> SplitScores:
    """The model's scores of a split, computed once and kept."""
    arithmetic = f"{options.provider}-{options.precision}"
    path = options.kept / f"{_digest(bundle)}-{arithmetic}-{name}-{split}-{options.queries}x{options.depth}.pickle"
    if not path.exists():
        model = GraphModel.open(bundle, options.provider, precision=options.precision)
        scored = score_split(bundle, model, options.data / name, split, options.queries, options.depth)
        scored.scores.collection = Path(scored.scores.collection.path)  # type: ignore[assignment]  # a corpus is large
        options.kept.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(scored))
    scored = pickle.loads(path.read_bytes())  # our own
    scored.scores.collection = Collection(scored.scores.collection)
    return scored


def _digest(bundle: Bundle) -> str:
    """A digest of the graph, of the pipeline's parts that decide the graph's input, and of the kept features."""
    pipeline = bundle.manifest.pipeline.model_dump_json(exclude={"fusion", "min_score", "spans"})
    return sha256((bundle.manifest.files[bundle.manifest.graph.file].sha256 + pipeline + " ".join(FEATURES)).encode()).hexdigest()[
        :12
    ]


def calibration_row(scored: SplitScores, fusion: Fusion, threshold: float | None, spans_fit: SpanScores | None) -> list[str]:
    """Calibration errors, AUROC, and rates at the threshold of one collection."""
    tops = top_scores(scored.scores, fusion)
    row = [calibration_error([scored.scores], fusion), top_gap(tops), auroc(tops.answered, tops.unanswered)]
    row += [*at_threshold([tops], threshold)[1:]] if threshold is not None else [np.nan] * 3
    sentences = sentence_scores(scored.read, fusion, spans_fit)
    row.append(np.nan if sentences is None else calibration_gap(*sentences))
    return [f"{value:.3f}" for value in row]


def gold_documents(read: Sequence[ReadDocument]) -> Iterator[ReadDocument]:
    """The relevant documents with a gold passage."""
    return (one for one in read if one.gold)


def coverage_row(scored: SplitScores, fusion: Fusion, spans_fit: SpanScores, most: int = MOST) -> list[str]:
    """Shares of gold passages that are met by the best spans, the best spans above THRESHOLD, key blocks, and shares of tokens."""
    hit, sure, blocks, tokens, whole, pruned = [], [], [], 0, 0, {share: list[bool]() for share in SHARES}
    for one in gold_documents(scored.read):
        text = scored.scores.collection.document(one.document).text
        scores = spans_fit.probabilities(one.marks, one.fused(fusion)).tolist()
        sentences = [Span(s.start, s.end, score) for s, score in zip(one.sentences, scores, strict=True)]
        best = spans(text, sentences, 0, most)
        hit.append(_meets(best, one.gold))
        sure.append(_meets(spans(text, sentences, THRESHOLD, most), one.gold))
        blocks.append(_meets(one.sentences, one.gold))
        tokens += sum(s.tokens for s in one.sentences if any(b.start <= s.start and s.end <= b.end for b in best))
        whole += one.tokens
        for share in SHARES:
            pruned[share].append(_within(one, scores, share * one.tokens))
    return (
        [f"{np.mean(met):.3f}" for met in (hit, sure, blocks)]
        + [f"{tokens / max(whole, 1):.3f}"]
        + [f"{np.mean(met):.3f}" for met in pruned.values()]
    )


def _meets(found: Sequence[Span | Sentence], gold: Sequence[GoldSpan]) -> bool:
    return any(one.start < passage.end and passage.start < one.end for one in found for passage in gold)


def _within(one: ReadDocument, scores: list[float], room: float) -> bool:
    """Whether one of the best sentences that together fit into `room` tokens meets the gold passage."""
    for number in np.argsort([-score for score in scores], kind="stable").tolist():
        sentence = one.sentences[number]
        room -= sentence.tokens
        if room < 0:
            return False
        if _meets([sentence], one.gold):
            return True
    return False


def reliability_picture(scored: Mapping[str, SplitScores], fusion: Fusion, spans_fit: SpanScores | None) -> Figure:
    """The share that answers by range of score, for the best results of queries and for sentences; a line for each collection."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    for number, title in enumerate(("best result of a query", "sentence")):
        axes = figure.add_subplot(1, 2, number + 1, xlabel="score", title=title, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="as it should be")
        for name, one in scored.items():
            found = top_scores(one.scores, fusion).judged if number == 0 else sentence_scores(one.read, fusion, spans_fit)
            if found is not None:
                axes.plot(*np.transpose(reliability_points(*found)), marker="o", label=name)
        axes.legend(fontsize="small")
    figure.axes[0].set_ylabel("share that answers")
    return figure


def sentence_scores(
    read: Sequence[ReadDocument], fusion: Fusion, spans_fit: SpanScores | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Scores and labels of sentences; None without span scores or sentences."""
    if spans_fit is None or not read:
        return None
    return np.concatenate(span_probabilities(read, fusion, spans_fit)), np.concatenate([one.labels for one in read])


def reliability_points(scores: NDArray[np.float64], labels: NDArray[np.float64]) -> list[tuple[float, float]]:
    """The mean score and the share of ones in each tenth of the scores' range with at least LEAST scores."""
    which = np.minimum((scores * 10).astype(int), 9)
    inside = [which == number for number in range(10) if (which == number).sum() >= LEAST]
    return [(float(scores[rows].mean()), float(labels[rows].mean())) for rows in inside]


HEAD = ["", "error, all", "error, best", "AUROC", "precision", "recall", "refused", "error, sentences"]
COVER = [
    "",
    "gold met by the best spans",
    f"of at least {THRESHOLD}",
    "by the key blocks",
    "tokens of the spans",
    *(f"at {share:.0%} of tokens" for share in SHARES),
]


def tables(options: argparse.Namespace) -> str:
    """All tables, in Markdown."""
    bundle = load_bundle(options.bundle)
    config = bundle.pipeline.config
    scored = {name: kept_scores(options, bundle, name, options.split) for name in options.only}
    rows = [[name, *calibration_row(one, config.fusion, config.min_score, config.spans)] for name, one in scored.items()]
    if options.picture is not None:
        reliability_picture(scored, config.fusion, config.spans).savefig(options.picture, dpi=110)
    parts = [
        f"{bundle.manifest.name}, {options.split}, {options.queries} queries, {options.depth} candidates",
        markdown([HEAD, *rows]),
    ]
    if config.spans is not None:
        parts.append(
            markdown(
                [
                    COVER,
                    *(
                        [name, *coverage_row(one, config.fusion, config.spans, options.most)]
                        for name, one in scored.items()
                        if one.read
                    ),
                ]
            )
        )
    dev = {name: kept_scores(options, bundle, name, "dev") for name in options.only}
    held_out = [[name, *_held_out_row(name, scored[name], dev, bundle)] for name in options.only if len(dev) > 1]
    return "\n\n".join([*parts, "fitted on dev of the others:", markdown([HEAD, *held_out])])


def _held_out_row(name: str, scored: SplitScores, dev: dict[str, SplitScores], bundle: Bundle) -> list[str]:
    """A collection's row with fusion, threshold and span scores fitted on dev of the other collections."""
    other_splits = [one for other, one in dev.items() if other != name]
    fusion = fit_fusion([one.scores for one in other_splits])
    threshold = best_threshold([top_scores(one.scores, fusion) for one in other_splits]).score
    spans_fit = fit_spans([one.read for one in other_splits if one.read], fusion) if bundle.manifest.graph.marks else None
    return calibration_row(scored, fusion, threshold, spans_fit)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    parser.add_argument("--kept", type=Path, required=True, help="directory that keeps the model's scores")
    parser.add_argument("--bundle", type=Path, default=Path("models/default"))
    parser.add_argument("--provider", default="cpu", help="computes the model (%(default)s)")
    parser.add_argument("--precision", default="fp32", help="its arithmetic (%(default)s)")
    parser.add_argument("--most", type=int, default=MOST, help="spans of a document that may hold the gold passage (%(default)s)")
    parser.add_argument("--picture", type=Path, help="a reliability diagram, as PNG")
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--only", nargs="+", default=COLLECTIONS, choices=COLLECTIONS)
    print(tables(parser.parse_args()))


if __name__ == "__main__":
    main()
