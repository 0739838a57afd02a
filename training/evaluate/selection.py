"""Measures how well a ranker finds the gold passage in its document: segment P@1 (BeST, Table 2)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.scoring import Model
from training.data.examples import Preparation, gold_overlaps
from training.data.types import Span

HALF = 0.5


class Segmented(NamedTuple):
    """A query and a relevant document with a known gold passage.

    Attributes:
        query: the query's id.
        document: the document's id.
        right: shape (n_blocks,), which blocks hold the passage.
    """

    query: str
    document: str
    right: NDArray[np.bool_]


def segmented(preparation: Preparation, queries: Sequence[str]) -> list[Segmented]:
    """The queries' relevant documents with a block that holds the gold passage; documents without one cannot be judged."""
    found = []
    for query in queries:
        spans = preparation.collection.spans.get(query, [])
        for doc_id in dict.fromkeys(span.doc_id for span in spans):
            right = holds(preparation, doc_id, [span for span in spans if span.doc_id == doc_id])
            if right.any():
                found.append(Segmented(query, doc_id, right))
    return found


def holds(preparation: Preparation, doc_id: str, gold: Sequence[Span]) -> NDArray[np.bool_]:
    """Which blocks hold a gold passage, shape (n_blocks,): they share half of the passage, or half of the block if that is less."""
    document = preparation.document(doc_id)
    right = np.zeros(document.n_blocks, dtype=np.bool_)
    for span in gold:
        needed = HALF * np.minimum(document.ends - document.starts, span.end - span.start)
        right |= gold_overlaps(document, [span]) >= np.maximum(needed, 1)
    return right


def segment_precision(preparation: Preparation, model: Model, pairs: Sequence[Segmented]) -> float:
    """P@1: the share of pairs whose best block, by the model's score, holds the passage; at least one."""
    hits = []
    for query, doc_id, right in pairs:
        pipeline, document = preparation.pipeline, preparation.document(doc_id)
        blocks = np.arange(document.n_blocks, dtype=np.intp)
        logits = model.choose(pipeline.block_sequences(preparation.query(query), document, blocks))
        hits.append(bool(right[int(np.argmax(logits))]))
    return float(np.mean(hits))


def random_precision(pairs: Sequence[Segmented]) -> float:
    """The expected P@1 of a random order: the mean share of blocks that hold the passage, of at least one pair."""
    return float(np.mean([right.mean() for _, _, right in pairs]))
