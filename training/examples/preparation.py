"""Prepares a collection's queries and documents by a pipeline, for training and evaluation."""

from collections.abc import Callable

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selectors import Selector
from training.collections.collection import Collection
from training.collections.types import Document, Span
from training.examples.examples import Pair

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
