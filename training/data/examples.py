"""Prepares a collection's texts and makes training examples of them: which parts of a document a ranker is trained on.

A row holds a query's documents, the relevant one first. Each document is a list of sequences; the loss compares their combined
scores. Examples that need no model are packed during the step before; a selection by the model in training waits for that step.
The marker learns the labels of a sequence's tokens that belong to the answering passage.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed, pack, pieces
from keyblock.pipeline import Pipeline, Selection
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.scoring import ScoreSequences, select_documents
from keyblock.selectors import Selector
from training.data.collection import Collection
from training.data.types import Document, Span

Row = list[list[Packed]]
SEEDS = 1 << 32
MANY = 16  # sequences of a document, if no setting bounds them


class Pair(NamedTuple):
    """A prepared document of a group, with its gold passages for the query (offsets into its text)."""

    document: PreparedDocument
    gold: Sequence[Span] = ()


class Waiting(NamedTuple):
    """Documents whose blocks the model in training has yet to choose; `seed` decides later random draws."""

    query: PreparedQuery
    documents: list[PreparedDocument]
    budget: int
    seed: int = 0


Prepared = list[Row] | Waiting


@dataclass(frozen=True)
class Examples(ABC):
    """Makes the rows of a group.

    Attributes:
        pipeline: prepares and packs the documents.
        needs_gold: whether only relevant documents with a gold passage can be used.
    """

    pipeline: Pipeline
    needs_gold: ClassVar[bool] = False

    @property
    @abstractmethod
    def sequences(self) -> int:
        """About how many sequences of a document go through the model with gradients; the size of micro batches depends on it."""

    @abstractmethod
    def prepare(self, query: PreparedQuery, pairs: Sequence[Pair], budget: int, rng: np.random.Generator) -> Prepared:
        """Prepare the rows as far as possible without the model."""

    def rows(self, prepared: Prepared, choose: ScoreSequences) -> list[Row]:
        """The rows; `choose` scores single blocks."""
        return self._chosen(prepared, choose) if isinstance(prepared, Waiting) else prepared

    def _chosen(self, waiting: Waiting, choose: ScoreSequences) -> list[Row]:
        """The rows of documents that waited for the model; none where no document waits."""
        return []


@dataclass(frozen=True)
class Selected(Examples):
    """The blocks that the pipeline selects, as in the service."""

    @property
    def sequences(self) -> int:
        """The passages that the pipeline's aggregator combines."""
        return getattr(self.pipeline.aggregator, "passages", 1) or MANY

    def prepare(self, query: PreparedQuery, pairs: Sequence[Pair], budget: int, rng: np.random.Generator) -> Prepared:
        """The row, unless the pipeline's selector asks the model."""
        documents = [pair.document for pair in pairs]
        if self.pipeline.asks_model:
            return Waiting(query, documents, budget, int(rng.integers(SEEDS)))
        return [self._row(query, documents, self.pipeline.select_each(query, documents, budget), budget)]

    def _chosen(self, waiting: Waiting, choose: ScoreSequences) -> list[Row]:
        query, documents, budget, _ = waiting
        return [self._row(query, documents, select_documents(self.pipeline, query, documents, choose, budget), budget)]

    def _row(self, query: PreparedQuery, documents: list[PreparedDocument], selections: list[Selection], budget: int) -> Row:
        """The selected sequences; a document without blocks is the query alone."""
        both = zip(selections, documents, strict=True)
        return [selection.sequences or [_block(query, d, 0, self.pipeline, budget)] for selection, d in both]


@dataclass(frozen=True)
class Shown(Selected):
    """The blocks that the pipeline selects; where they hold no gold passage of a relevant document, its best block comes first.

    A relevant document whose passage was not selected teaches that a text on the topic is an answer.
    """

    def prepare(self, query: PreparedQuery, pairs: Sequence[Pair], budget: int, rng: np.random.Generator) -> Prepared:
        """The row."""
        documents = [pair.document for pair in pairs]
        selections = self.pipeline.select_each(query, documents, budget)
        row = self._row(query, documents, selections, budget)
        for place, ((document, gold), selection) in enumerate(zip(pairs, selections, strict=True)):
            overlaps, packed = gold_overlaps(document, gold), row[place][0]
            whole = packed.taken[:-1] if packed.cut else packed.taken  # what is left of the last block may hold none of it
            if overlaps.any() and not overlaps[whole].any():
                best = max(np.flatnonzero(overlaps), key=lambda block: (selection.scores[block], overlaps[block]))
                order = np.asarray([best, *(block for block in selection.taken if block != best)], np.intp)
                row[place] = [
                    pack(self.pipeline.beside(query, document), document, order, self.pipeline.tokenizer.template, budget)
                ]
        return [row]


@dataclass(frozen=True)
class Gold(Examples):
    """The block that overlaps the gold passage most; a random block of a document without a gold passage (GoldP, BeST section 4).

    Relevant documents without a gold passage are not trained on, as in the paper, which finds 58% of MS MARCO's passages.
    """

    needs_gold: ClassVar[bool] = True

    @property
    def sequences(self) -> int:
        """One block."""
        return 1

    def prepare(self, query: PreparedQuery, pairs: Sequence[Pair], budget: int, rng: np.random.Generator) -> Prepared:
        """The row."""
        row = []
        for document, gold in pairs:
            overlaps = gold_overlaps(document, gold)
            best = int(np.argmax(overlaps)) if overlaps.any() else int(rng.integers(max(1, document.n_blocks)))
            row.append([_block(query, document, best, self.pipeline, budget)])
        return [row]


@dataclass(frozen=True)
class Segments(Examples):
    """The shortlisted blocks, one for each row: row j compares the documents' j-th blocks (BeST's loss of theta 0).

    A document with fewer blocks repeats its last one. With `drawn`, only that many random rows are used: an unbiased sample of the
    loss.
    """

    drawn: int | None = None

    @property
    def sequences(self) -> int:
        """The rows that are drawn, or the blocks of a shortlist."""
        return self.drawn or getattr(self.pipeline.selector, "keep", 0) or MANY

    def prepare(self, query: PreparedQuery, pairs: Sequence[Pair], budget: int, rng: np.random.Generator) -> Prepared:
        """Documents that wait, since the shortlist is long."""
        return Waiting(query, [pair.document for pair in pairs], budget, int(rng.integers(SEEDS)))

    def _chosen(self, waiting: Waiting, choose: ScoreSequences) -> list[Row]:
        query, documents, budget, seed = waiting
        blocks = [
            self.pipeline.shortlist(query, d, budget).sequences or [_block(query, d, 0, self.pipeline, budget)] for d in documents
        ]
        most = max(map(len, blocks))
        rows = np.random.default_rng(seed).permutation(most)[: self.drawn]
        return [[[sequences[min(j, len(sequences) - 1)]] for sequences in blocks] for j in sorted(rows.tolist())]


EXAMPLES: dict[str, Callable[[Pipeline], Examples]] = {"selected": Selected, "shown": Shown, "gold": Gold, "segments": Segments}
"""The kinds of examples, by their names in a recipe's `examples`."""


def gold_overlaps(document: PreparedDocument, gold: Sequence[Span]) -> NDArray[np.int64]:
    """How many code points each block shares with gold passages, shape (n_blocks,)."""
    overlaps = np.zeros(document.n_blocks, dtype=np.int64)
    for span in gold:
        overlaps += np.maximum(np.minimum(document.ends, span.end) - np.maximum(document.starts, span.start), 0)
    return overlaps


def _block(query: PreparedQuery, document: PreparedDocument, block: int, pipeline: Pipeline, budget: int) -> Packed:
    order = np.arange(document.n_blocks, dtype=np.intp)[block : block + 1]
    return pack(query, document, order, pipeline.tokenizer.template, budget)


Labels = NDArray[np.int8]
LEFT_OUT = -1  # label of a token of the query, of the title, or of a relevant document without a gold passage


def no_labels(packed: Packed) -> Labels:
    """Labels of a sequence whose tokens are all left out, shape (length,)."""
    return np.full(len(packed.ids), LEFT_OUT, np.int8)


def token_labels(
    pipeline: Pipeline,
    document: PreparedDocument,
    text: str,
    gold: Sequence[Span],
    packed: Packed,
) -> Labels:
    """Labels of a sequence's tokens, shape (length,).

    The label is 1 for a token inside a gold passage, 0 for another token of the document's blocks, else LEFT_OUT.

    Args:
        pipeline: the pipeline that prepared and packed the document; its sequences hold whole blocks, not grown by neighbours.
        document: the sequence's document.
        text: the document's text.
        gold: the document's gold passages; without any, all tokens of its blocks are 0.
        packed: the sequence.
    """
    labels = no_labels(packed)
    starts, ends = pipeline.reader.read([text])[0].places() if len(gold) else (document.starts[:0], document.ends[:0])
    lengths, after = document.bounds[:, 1] - document.bounds[:, 0], len(pipeline.tokenizer.template.after)
    for block, at, count in pieces(packed, packed.taken, lengths, document.starts, len(document.title_ids), after):
        first = int(document.bounds[block, 0])
        tokens, inside = slice(first, first + count), np.zeros(count, np.bool_)
        for span in gold:
            inside |= (starts[tokens] < span.end) & (ends[tokens] > span.start)
        labels[at : at + count] = inside
    return labels


KEPT = 100_000  # prepared documents kept in memory: a long run reads more of MS MARCO's than fit


class Preparation:
    """A pipeline over one collection. It keeps prepared queries and the last prepared documents in memory."""

    def __init__(
        self, collection: Collection, pipeline: Pipeline, prepare: Callable[[Document], PreparedDocument] | None = None
    ) -> None:
        self.collection = collection
        self.pipeline = pipeline
        self._prepare = prepare or (lambda document: pipeline.prepare_document(document.text, document.title))
        self._documents: dict[str, PreparedDocument] = {}
        self._queries: dict[str, PreparedQuery] = {}

    def document(self, doc_id: str) -> PreparedDocument:
        """The prepared document. Raises CollectionError when the corpus lacks it."""
        found = self._documents.get(doc_id)
        if found is None:
            found = self._documents[doc_id] = self._prepare(self.collection.document(doc_id))
            if len(self._documents) > KEPT:
                self._documents.pop(next(iter(self._documents)), None)
        return found

    def query(self, query_id: str) -> PreparedQuery:
        """The prepared query. Raises CollectionError when the queries lack it."""
        if query_id not in self._queries:
            self._queries[query_id] = self.pipeline.prepare_query(self.collection.query(query_id))
        return self._queries[query_id]

    def pack(self, query_id: str, doc_id: str, budget: int) -> Packed:
        """The model's input for a query and a document."""
        return self.pipeline.select(self.query(query_id), self.document(doc_id), budget).packed

    def pair(self, query_id: str, doc_id: str) -> Pair:
        """The prepared document with its gold passages for the query."""
        return Pair(self.document(doc_id), self.gold(query_id, doc_id))

    def gold(self, query_id: str, doc_id: str) -> list[Span]:
        """The document's gold passages for the query."""
        return [span for span in self.collection.spans.get(query_id, ()) if span.doc_id == doc_id]

    def best_block(self, query_id: str, doc_id: str, selector: Selector) -> float:
        """A selector's score of the document's best block; 0 for a document without blocks."""
        scores = selector.scores(self.query(query_id), self.document(doc_id), self.pipeline.frequencies)
        return float(scores.max()) if len(scores) else 0.0
