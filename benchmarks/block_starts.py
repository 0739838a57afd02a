"""Compares segmenters without a model: their blocks, and how often the gold passage is in the three best blocks.

    python benchmarks/block_starts.py --data DATA [--queries 300] [--segmenters cogltx whole_sentences]

For each collection, over the relevant documents of dev queries with a known gold passage: blocks a document, mean fill (a block's
tokens as a share of the limit), blocks that start with a sentence, whether one of the three best blocks by BM25 holds the passage
(half of it, or half of the block), and the shares of the passage's characters in these blocks and in the packed budget.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keyblock.bundle import load_bundle
from keyblock.pipeline import Pipeline
from keyblock.segmenters import SEGMENTERS
from keyblock.text.sentences import sentences
from training.collections.collection import Collection
from training.evaluation.evaluate import sample
from training.evaluation.intrinsic import holds
from training.examples.examples import gold_overlaps
from training.examples.preparation import Preparation

BUNDLE = Path(__file__).resolve().parent.parent / "models" / "default"
COLLECTIONS = ("squad-far", "squad-articles", "qmsum", "evidence")
COLUMNS = ("blocks", "fill", "at a sentence", "gold in 3 best", "gold read, 3 best", "gold read, packed")
BEST = 3


def measured(preparation: Preparation, queries: Sequence[str]) -> tuple[int, list[float]]:
    """The number of documents measured, and the means of COLUMNS."""
    rows, most = [], preparation.pipeline.config.segmenter["block_tokens"]
    for query in queries:
        spans = preparation.collection.spans.get(query, [])
        for doc_id in dict.fromkeys(span.doc_id for span in spans):
            gold = [span for span in spans if span.doc_id == doc_id]
            document = preparation.document(doc_id)
            selection = preparation.pipeline.select(preparation.query(query), document)
            best = np.lexsort((-selection.scores,))[:BEST]
            overlaps, length = gold_overlaps(document, gold), sum(span.end - span.start for span in gold)
            starts = {start for start, _ in sentences(preparation.collection.document(doc_id).text)}
            at_sentence = np.mean([start in starts for start in document.starts.tolist()])
            fill = float(np.diff(document.bounds).mean()) / most
            hit = holds(preparation, doc_id, gold)[best].any()
            read = [overlaps[blocks].sum() / length for blocks in (best, selection.taken)]
            rows.append([document.n_blocks, fill, at_sentence, hit, *read])
    return len(rows), np.mean(np.asarray(rows, dtype=float), axis=0).tolist()


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    default = load_bundle(BUNDLE).pipeline
    print(f"| collection | segmenter | passages | {' | '.join(COLUMNS)} |")
    for name in options.collections:
        collection = Collection(options.data / name)
        split = "dev.small" if name == "squad-articles" else "dev"
        queries = sample([query for query in collection.split(split) if collection.spans.get(query)], options.queries)
        for segmenter in options.segmenters:
            config = default.config.model_copy(update={"segmenter": SEGMENTERS.create(segmenter).describe()})
            pipeline = Pipeline(config, default.tokenizer, default.frequencies, default.encoder)
            n, means = measured(Preparation(collection, pipeline), queries)
            print(f"| {name} | {segmenter} | {n} | {' | '.join(f'{mean:.3f}' for mean in means)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser("block_starts.py", description="Compare segmenters without a model.")
    parser.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    parser.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    parser.add_argument("--segmenters", nargs="+", default=["cogltx", "whole_sentences"])
    parser.add_argument("--queries", type=int, default=300, help="of each collection at most")
    main(parser.parse_args())
