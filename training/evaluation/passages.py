"""Questions with a known gold passage, each with the blocks of its document. Selection is trained and measured on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selectors import SELECTORS
from training.evaluation.intrinsic import holds
from training.examples.preparation import Preparation


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
