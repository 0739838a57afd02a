"""Measures how well rankers and selectors find the gold passage in its document: segment P@1 (BeST, Table 2), best blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.scoring import Model
from keyblock.selectors import SELECTORS, Selector, rank_blocks
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
    """P@1: the share of pairs whose best block, by the model's score, holds the passage. Raises ValueError without pairs."""
    _require_pairs(pairs)
    hits = []
    for query, doc_id, right in pairs:
        pipeline, document = preparation.pipeline, preparation.document(doc_id)
        blocks = np.arange(document.n_blocks, dtype=np.intp)
        logits = model.choose(pipeline.block_sequences(preparation.query(query), document, blocks))
        hits.append(bool(right[int(np.argmax(logits))]))
    return float(np.mean(hits))


def random_precision(pairs: Sequence[Segmented]) -> float:
    """The expected P@1 of a random order: the mean share of blocks that hold the passage. Raises ValueError without pairs."""
    _require_pairs(pairs)
    return float(np.mean([right.mean() for _, _, right in pairs]))


def _require_pairs(pairs: Sequence[Segmented]) -> None:
    if not pairs:
        raise ValueError("no query has a gold passage (spans.jsonl) that a block holds: segment P@1 cannot be measured")


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A query and the blocks of a document that holds its gold passage.

    Attributes:
        query: number of the query's text.
        first: number of the text of block 0; the other blocks follow.
        right: shape (n_blocks,), which blocks hold the passage; at least one does.
        lexical: shape (n_blocks,), the blocks' BM25 scores.
        overlap: share of the query's terms that occur in a right block.
    """

    query: int
    first: int
    right: NDArray[np.bool_]
    lexical: NDArray[np.float64]
    overlap: float

    @property
    def blocks(self) -> NDArray[np.intp]:
        """Numbers of the blocks' texts, shape (n_blocks,)."""
        return self.first + np.arange(len(self.right))


@dataclass
class Passages:
    """Numbered texts of queries and blocks, and the questions that refer to them.

    Attributes:
        texts: the texts of queries and blocks.
        tokens: token ids of each text, shape (n_tokens,).
        questions: the questions with a block that holds the passage.
        shares: how many questions each `add` call added, by its name, in order.
    """

    texts: list[str] = field(default_factory=list)
    tokens: list[NDArray[np.int32]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    shares: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, preparation: Preparation, queries: Sequence[str]) -> None:
        """Add a collection's queries and the documents that hold their gold passages; queries without one are left out."""
        before, documents = len(self.questions), dict[str, int]()
        for query in queries:
            for doc_id in dict.fromkeys(span.doc_id for span in preparation.collection.spans.get(query, ())):
                self._add(preparation, query, doc_id, documents)
        self.shares[name] = len(self.questions) - before

    def _add(self, preparation: Preparation, query_id: str, doc_id: str, documents: dict[str, int]) -> None:
        right = holds(preparation, doc_id, preparation.gold(query_id, doc_id))
        if not right.any():
            return
        document, query = preparation.document(doc_id), preparation.query(query_id)
        if doc_id not in documents:
            documents[doc_id] = len(self.texts)
            text = preparation.collection.document(doc_id).text
            for (first, last), start, end in zip(document.bounds, document.starts, document.ends, strict=True):
                self._text(text[start:end], document.token_ids[first:last])
        lexical = SELECTORS.create({"name": "bm25"}).scores(query, document, preparation.pipeline.frequencies)
        number = self._text(preparation.collection.query(query_id), query.token_ids)
        self.questions.append(Question(number, documents[doc_id], right, lexical, term_overlap(query, document, right)))

    def _text(self, text: str, tokens: NDArray[np.int32]) -> int:
        self.texts.append(text)
        self.tokens.append(tokens)
        return len(self.texts) - 1

    def named(self) -> Mapping[str, list[Question]]:
        """The questions by the name of the `add` call that added them."""
        ends = np.cumsum(list(self.shares.values())).tolist()
        return {name: self.questions[end - count : end] for (name, count), end in zip(self.shares.items(), ends, strict=True)}


def term_overlap(query: PreparedQuery, document: PreparedDocument, right: NDArray[np.bool_]) -> float:
    """The share of the query's terms that occur in a block marked in `right`, shape (n_blocks,); 0 without terms."""
    found = [document.terms[first:last] for first, last in _between(document.term_bounds, right)]
    return float(np.isin(query.terms, np.concatenate(found)).mean()) if len(query.terms) else 0.0


def _between(bounds: NDArray[np.int32], chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
    return np.stack([bounds[:-1], bounds[1:]], axis=1)[chosen]


BEST = 3  # blocks: about what the default budget reads of a document
DECILE = 10


class Judged(NamedTuple):
    """A query and a document that holds its gold passage, with the scores of some selectors.

    Attributes:
        right: shape (n_blocks,), which blocks hold the passage; at least one does.
        scores: shape (n_selectors, n_blocks).
        overlap: share of the query's terms that occur in a right block.
    """

    right: NDArray[np.bool_]
    scores: NDArray[np.float64]
    overlap: float


class Found(NamedTuple):
    """Shares of queries with a right block among the BEST.

    Attributes:
        queries: the number of queries.
        of_all: the share among all queries.
        of_least_overlap: the share among the tenth of the queries whose terms overlap least with the passage.
    """

    queries: int
    of_all: float
    of_least_overlap: float


def judge(preparation: Preparation, queries: Sequence[str], selectors: Sequence[Selector]) -> list[Judged]:
    """The queries with a block that holds their passage, and the blocks' scores by selectors that need no model."""
    judged = []
    for query_id, doc_id, right in segmented(preparation, queries):
        query, document = preparation.query(query_id), preparation.document(doc_id)
        scores = [selector.scores(query, document, preparation.pipeline.frequencies) for selector in selectors]
        judged.append(Judged(right, np.stack(scores), term_overlap(query, document, right)))
    return judged


def figures(judged: Sequence[Judged], weights: NDArray[np.float64]) -> Found:
    """The figures of a weighted sum of the selectors' scores, shape (n_selectors,). Raises ValueError without queries."""
    if not judged:
        raise ValueError("no query has a gold passage (spans.jsonl) that a block holds: selection cannot be measured")
    hits = np.asarray([bool(right[rank_blocks(weights @ scores)[:BEST]].any()) for right, scores, _ in judged])
    least = np.argsort([one.overlap for one in judged], kind="stable")[: max(1, len(judged) // DECILE)]
    return Found(len(hits), float(hits.mean()), float(hits[least].mean()))


def learned_weights(judged: Mapping[str, Sequence[Judged]], smallest: float = 0.0) -> NDArray[np.float64]:
    """Weights of the selectors' scores, shape (n_selectors,), that make the right blocks most likely.

    A softmax over a document's blocks gives the probability of each block. The weights maximise the mean logarithm of the right
    blocks' total probability; every collection counts the same (a conditional logit; McFadden 1974). Only the proportions of the
    weights matter for an order.

    Args:
        judged: the judged queries by collection; none of the lists is empty.
        smallest: the lower bound of a weight.
    """
    from scipy.optimize import minimize

    groups = [(right, scores, 1 / len(group)) for group in judged.values() for right, scores, _ in group]
    count = len(groups[0][1])

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        total, slope = 0.0, np.zeros(count)
        for right, scores, share in groups:
            logits = weights @ scores
            exponents = np.exp(logits - logits.max())
            of_right = np.where(right, exponents, 0.0)
            total -= share * float(np.log(of_right.sum() / exponents.sum()))
            slope -= share * (scores @ (of_right / of_right.sum() - exponents / exponents.sum()))
        return total, slope

    fitted = minimize(loss, np.ones(count), jac=True, method="L-BFGS-B", bounds=[(smallest, None)] * count)
    return np.asarray(fitted.x)
