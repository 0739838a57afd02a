"""Cost and gain of escalation by its threshold of doubt, on dev queries with a known gold passage.

    python -m benchmarks.escalation --data DATA [--collections squad-far ...] [--queries 60]

A row is a threshold `below`, with the share of the first stage's candidates in doubt, the mean number of extra tokens that the
model reads of a candidate (all blocks of a document in doubt, up to `--tokens`), and how often the blocks chosen from the relevant
document include one with the gold passage. Documents whose blocks are all read are left out, since nothing is chosen.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.cascade import Remembering
from keyblock.bundle import Bundle, load_bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel
from keyblock.scoring import questions, select_documents
from training.collections.collection import Collection
from training.evaluation.intrinsic import Segmented, segmented
from training.evaluation.tables import markdown
from training.examples.preparation import Preparation

DEFAULT = Path(__file__).resolve().parent.parent / "models" / "default"
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


class Point(NamedTuple):
    """The measurements at a threshold.

    Attributes:
        doubtful: share of the candidates in doubt.
        tokens: mean number of extra tokens for a candidate.
        gold: share of the relevant documents whose gold passage is read.
    """

    doubtful: float
    tokens: float
    gold: float


def escalating(bundle: Bundle, below: float, tokens: int, budget: int | None) -> Pipeline:
    """The bundle's pipeline with this escalation in place of its own."""
    escalation = {"below": below, "blocks": 1, "tokens": tokens, "budget": budget}
    config = PipelineConfig.model_validate(bundle.manifest.pipeline.model_dump() | {"escalation": escalation, "cascade": None})
    return Pipeline(config, bundle.tokenizer, bundle.frequencies, bundle.pipeline.encoder)


def point(pipeline: Pipeline, model: Remembering, preparation: Preparation, pairs: Sequence[Segmented], n_candidates: int) -> Point:
    """Measure one threshold; the cost is that of `n_candidates` random candidates of each query."""
    rng, run = random.Random(0), preparation.collection.run("dev")
    gold, doubtful, tokens = [], [], []
    for query_id, doc_id, right in pairs:
        query, document = preparation.query(query_id), preparation.document(doc_id)
        (selection,) = select_documents(pipeline, query, [document], model.choose)
        if selection.by is not None:
            gold.append(bool(right[selection.taken].any()))
        candidates = sorted(run.get(query_id, {}))
        for name in rng.sample(candidates, min(n_candidates, len(candidates))):
            candidate = preparation.document(name)
            plain = pipeline.select(query, candidate)
            doubtful.append(plain.doubtful)
            (question,) = questions(pipeline, query, [candidate]) if plain.doubtful else (None,)
            tokens.append(0 if question is None else sum(len(packed.ids) for packed in question.sequences))
    return Point(float(np.mean(doubtful)), float(np.mean(tokens)), float(np.mean(gold)))


def curve(bundle: Bundle, collection: Collection, options: argparse.Namespace) -> list[list[str]]:
    """A collection's rows."""
    queries = [query for query in collection.split("dev") if collection.spans.get(query)]
    queries = random.Random(0).sample(queries, min(options.queries, len(queries)))
    preparation = Preparation(collection, bundle.pipeline)
    pairs = segmented(preparation, queries)
    model, rows = Remembering(GraphModel.open(bundle, "cpu")), []
    for below in THRESHOLDS:
        found = point(escalating(bundle, below, options.tokens, options.budget), model, preparation, pairs, options.candidates)
        rows.append([collection.name, f"{below:g}", f"{found.doubtful:.0%}", f"{found.tokens:.0f}", f"{found.gold:.3f}"])
        print(" ".join(rows[-1]), file=sys.stderr)
    return rows


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.escalation", description="Cost and gain of escalation by its threshold, on dev.")
    made.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    made.add_argument("--collections", nargs="+", default=["squad-far", "squad-articles", "qmsum"], help="their names")
    made.add_argument("--bundle", type=Path, default=DEFAULT, help="whose pipeline and model")
    made.add_argument("--queries", type=int, default=60, help="dev queries of each collection")
    made.add_argument("--candidates", type=int, default=6, help="candidates of each query that tell the cost")
    made.add_argument("--tokens", type=int, default=2048, help="tokens that asking about one document may take")
    made.add_argument(
        "--budget", type=int, default=None, help="tokens that a document in doubt is read at; the bundle's by default"
    )
    return made


def main(options: argparse.Namespace) -> None:
    """Print the table."""
    bundle = load_bundle(options.bundle)
    rows = [row for name in options.collections for row in curve(bundle, Collection(options.data / name), options)]
    head = ["dev queries of", "below", "candidates in doubt", "extra tokens a candidate", "gold passage read"]
    print(markdown([head, *rows]))


if __name__ == "__main__":
    main(parser().parse_args())
