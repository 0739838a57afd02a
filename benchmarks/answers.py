"""Do scores mean something across queries, and do spans hold the answer? Calibration, thresholds, coverage and pruning.

    python -m benchmarks.answers --data DATA --kept KEPT                            # dev and test of the embedded bundle
    python -m benchmarks.answers --data DATA --kept KEPT --bundle OTHER --split dev
    python -m benchmarks.answers --data DATA --kept KEPT --split dev --provider openvino --precision int8-static --most 1

The first table is the bundle as it is. The last is fitted again without each collection in turn, on dev of the others: what users'
own texts will meet, but for the model itself, which has seen all of them. KEPT keeps what the model said.
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
SHOWN = 10  # results of a query whose spans are judged
MOST = 3  # spans of a document that may hold the gold passage
LEAST = 5  # queries or sentences that a point of a picture stands for
SHARES = (0.05, 0.1, 0.2, 0.4)  # of a document's tokens that are passed on


@dataclass
class Said:
    """What a model said of the queries of one split.

    Attributes:
        scores: features of all candidates.
        read: the relevant documents and the first candidates of queries with gold passages, sentence by sentence.
    """

    scores: DevScores
    read: list[ReadDocument]


def said_of(bundle: Bundle, model: GraphModel, path: Path, split: str, queries: int, depth: int) -> Said:
    """Score a split."""
    collection = Collection(path)
    ranker = bundle_ranker(bundle, model, collection)
    run = first_stage_run(collection, split, depth)
    said = Said(DevScores(collection, {}, {}), [])
    for query in sample(sorted(run), queries):
        _score(ranker, query, list(run[query])[:depth], said)
    return said


def _score(ranker: LocalRanker, query: str, documents: list[str], said: Said) -> None:
    logits, selections, marks = ranker.score(query, documents)
    finite = np.maximum(logits.astype(np.float64), LOWEST)
    said.scores.features[query] = np.column_stack([finite, np.stack([s.evidence for s in selections])])
    said.scores.documents[query] = documents
    gold = [bool(ranker.preparation.gold(query, document)) for document in documents]
    if marks is None or not any(gold):
        return
    for number, document in enumerate(documents):
        if (number < SHOWN or gold[number]) and selections[number].sequences:
            one = candidate(ranker.preparation.document(document), selections[number])
            said.read.append(ReadDocument.of(ranker, query, document, one, float(finite[number]), marks[number]))


def kept(options: argparse.Namespace, bundle: Bundle, name: str, split: str) -> Said:
    """What the model said, computed once."""
    how = f"{options.provider}-{options.precision}"
    path = options.kept / f"{_digest(bundle)}-{how}-{name}-{split}-{options.queries}x{options.depth}.pickle"
    if not path.exists():
        model = GraphModel.open(bundle, options.provider, precision=options.precision)
        said = said_of(bundle, model, options.data / name, split, options.queries, options.depth)
        said.scores.collection = Path(said.scores.collection.path)  # type: ignore[assignment]  # a corpus is large
        options.kept.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(said))
    said = pickle.loads(path.read_bytes())  # our own
    said.scores.collection = Collection(said.scores.collection)
    return said


def _digest(bundle: Bundle) -> str:
    """Of the graph, of all of the pipeline that decides what it reads, and of what is kept."""
    pipeline = bundle.manifest.pipeline.model_dump_json(exclude={"fusion", "min_score", "spans"})
    return sha256((bundle.manifest.files[bundle.manifest.graph.file].sha256 + pipeline + " ".join(FEATURES)).encode()).hexdigest()[
        :12
    ]


def calibration_row(said: Said, fusion: Fusion, threshold: float | None, how: SpanScores | None) -> list[str]:
    """Errors and areas of one collection."""
    tops = top_scores(said.scores, fusion)
    row = [calibration_error([said.scores], fusion), top_gap(tops), auroc(tops.answered, tops.unanswered)]
    row += [*at_threshold([tops], threshold)[1:]] if threshold is not None else [np.nan] * 3
    sentences = sentence_scores(said.read, fusion, how)
    row.append(np.nan if sentences is None else calibration_gap(*sentences))
    return [f"{value:.3f}" for value in row]


def gold_documents(read: Sequence[ReadDocument]) -> Iterator[ReadDocument]:
    """The relevant documents with a gold passage."""
    return (one for one in read if one.gold)


def coverage_row(said: Said, fusion: Fusion, how: SpanScores, most: int = MOST) -> list[str]:
    """Shares of gold passages met: by the best spans, of any score and of THRESHOLD, by key blocks, by shares of the tokens."""
    hit, sure, blocks, tokens, whole, pruned = [], [], [], 0, 0, {share: list[bool]() for share in SHARES}
    for one in gold_documents(said.read):
        text = said.scores.collection.document(one.document).text
        scores = how.probabilities(one.marks, one.fused(fusion)).tolist()
        scored = [Span(s.start, s.end, score) for s, score in zip(one.sentences, scores, strict=True)]
        best = spans(text, scored, 0, most)
        hit.append(_meets(best, one.gold))
        sure.append(_meets(spans(text, scored, THRESHOLD, most), one.gold))
        blocks.append(_meets(one.sentences, one.gold))
        tokens += sum(s.tokens for s in one.sentences if any(b.start <= s.start and s.end <= b.end for b in best))
        whole += one.tokens
        for share in SHARES:
            pruned[share].append(_within(one, scores, share * one.tokens))
    return (
        [f"{np.mean(of):.3f}" for of in (hit, sure, blocks)]
        + [f"{tokens / max(whole, 1):.3f}"]
        + [f"{np.mean(of):.3f}" for of in pruned.values()]
    )


def _meets(found: Sequence[Span | Sentence], gold: Sequence[GoldSpan]) -> bool:
    return any(one.start < passage.end and passage.start < one.end for one in found for passage in gold)


def _within(one: ReadDocument, scores: list[float], room: float) -> bool:
    """Whether the best sentences that fit so many tokens meet the gold passage."""
    for number in np.argsort([-score for score in scores], kind="stable").tolist():
        sentence = one.sentences[number]
        room -= sentence.tokens
        if room < 0:
            return False
        if _meets([sentence], one.gold):
            return True
    return False


def reliability_picture(said: Mapping[str, Said], fusion: Fusion, how: SpanScores | None) -> Figure:
    """By range of score the share that is right, of the best result of each query and of sentences; collection by collection."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    for number, title in enumerate(("best result of a query", "sentence")):
        axes = figure.add_subplot(1, 2, number + 1, xlabel="score", title=title, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="as it should be")
        for name, of in said.items():
            found = top_scores(of.scores, fusion).judged if number == 0 else sentence_scores(of.read, fusion, how)
            if found is not None:
                axes.plot(*np.transpose(reliability_points(*found)), marker="o", label=name)
        axes.legend(fontsize="small")
    figure.axes[0].set_ylabel("share that answers")
    return figure


def sentence_scores(
    read: Sequence[ReadDocument], fusion: Fusion, how: SpanScores | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Scores and labels of sentences; None where nothing gives them one."""
    if how is None or not read:
        return None
    return np.concatenate(span_probabilities(read, fusion, how)), np.concatenate([one.labels for one in read])


def reliability_points(scores: NDArray[np.float64], labels: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Mean score and share of ones of each tenth of the scores' range that has at least LEAST."""
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
    """All of it."""
    bundle = load_bundle(options.bundle)
    config = bundle.pipeline.config
    said = {name: kept(options, bundle, name, options.split) for name in options.only}
    rows = [[name, *calibration_row(of, config.fusion, config.min_score, config.spans)] for name, of in said.items()]
    if options.picture is not None:
        reliability_picture(said, config.fusion, config.spans).savefig(options.picture, dpi=110)
    parts = [
        f"{bundle.manifest.name}, {options.split}, {options.queries} queries, {options.depth} candidates",
        markdown([HEAD, *rows]),
    ]
    if config.spans is not None:
        parts.append(
            markdown(
                [
                    COVER,
                    *([name, *coverage_row(of, config.fusion, config.spans, options.most)] for name, of in said.items() if of.read),
                ]
            )
        )
    dev = {name: kept(options, bundle, name, "dev") for name in options.only}
    left = [[name, *_left_out(name, said[name], dev, bundle)] for name in options.only if len(dev) > 1]
    return "\n\n".join([*parts, "fitted on dev of the others:", markdown([HEAD, *left])])


def _left_out(name: str, said: Said, dev: dict[str, Said], bundle: Bundle) -> list[str]:
    others = [of for other, of in dev.items() if other != name]
    fusion = fit_fusion([of.scores for of in others])
    threshold = best_threshold([top_scores(of.scores, fusion) for of in others]).score
    how = fit_spans([of.read for of in others if of.read], fusion) if bundle.manifest.graph.marks else None
    return calibration_row(said, fusion, threshold, how)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    parser.add_argument("--kept", type=Path, required=True, help="where what the model said is kept")
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
