"""A collection as passages: its documents, or their paragraphs where spans mark relevant ones."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from training.data.collection import Collection

BLANK_LINES, LINE_ENDS = re.compile(r"\s*\n\s*\n\s*"), re.compile(r"\s*\n\s*")


class Gold(NamedTuple):
    """A relevant passage of a query.

    Attributes:
        text: without white space around it.
        covers: ids of the passages that it consists of; several where a span crosses paragraphs.
    """

    text: str
    covers: tuple[str, ...]


class Passages(ABC):
    """Passages by id. A passage's source is the document that it comes from."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    @property
    @abstractmethod
    def ids(self) -> Sequence[str]:
        """The ids of all passages, in the order of the corpus."""

    @abstractmethod
    def text(self, passage_id: str) -> str:
        """A passage without white space around it."""

    @abstractmethod
    def source(self, passage_id: str) -> str:
        """The id of the passage's document."""

    @abstractmethod
    def relevant(self, query_id: str) -> list[Gold]:
        """The query's relevant passages."""

    def sources(self, query_id: str) -> list[str]:
        """The documents that are judged relevant for the query, as far as the corpus has them."""
        judged = [name for name, grade in self.collection.qrels.get(query_id, {}).items() if grade > 0]
        return [name for name in self.collection.present(judged) if name in self.collection.documents]


class WholeDocuments(Passages):
    """Each document is a passage; titles are left out."""

    @cached_property
    def ids(self) -> list[str]:
        """See Passages."""
        return list(self.collection.documents)

    def text(self, passage_id: str) -> str:
        """See Passages; read from the collection at each call."""
        return self.collection.document(passage_id).text.strip()

    def source(self, passage_id: str) -> str:
        """See Passages: the passage's own id."""
        return passage_id

    def relevant(self, query_id: str) -> list[Gold]:
        """See Passages: the documents judged relevant."""
        return [Gold(self.text(name), (name,)) for name in self.sources(query_id)]


class Place(NamedTuple):
    """A paragraph: ``text[start:end]`` of its document."""

    doc_id: str
    start: int
    end: int


class Paragraphs(Passages):
    """Each paragraph of each document is a passage; a gold passage is a span, widened to whole paragraphs."""

    @cached_property
    def _places(self) -> Mapping[str, Place]:
        return {f"{place.doc_id}:{place.start}": place for places in self._by_document.values() for place in places}

    @cached_property
    def _by_document(self) -> dict[str, list[Place]]:
        return {
            name: [Place(name, *place) for place in paragraphs(self.collection.document(name).text)]
            for name in self.collection.documents
        }

    @property
    def ids(self) -> list[str]:
        """See Passages."""
        return list(self._places)

    def text(self, passage_id: str) -> str:
        """See Passages."""
        doc_id, start, end = self._places[passage_id]
        return self.collection.document(doc_id).text[start:end]

    def source(self, passage_id: str) -> str:
        """See Passages."""
        return self._places[passage_id].doc_id

    def relevant(self, query_id: str) -> list[Gold]:
        """See Passages; spans of white space and of documents that the corpus lacks are left out."""
        found = []
        for span in self.collection.spans.get(query_id, ()):
            places = [p for p in self._by_document.get(span.doc_id, ()) if p.start < span.end and p.end > span.start]
            if places:
                text = self.collection.document(span.doc_id).text[places[0].start : places[-1].end]
                found.append(Gold(text, tuple(f"{p.doc_id}:{p.start}" for p in places)))
        return list(dict.fromkeys(found))


def paragraphs(text: str) -> list[tuple[int, int]]:
    """Start and end of each paragraph. Blank lines separate paragraphs; without one, each line (a transcript's turn) is one."""
    border = BLANK_LINES if BLANK_LINES.search(text.strip()) else LINE_ENDS
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    cuts = [found.span() for found in border.finditer(text, first, last)]
    starts, ends = [first, *(end for _, end in cuts)], [*(start for start, _ in cuts), last]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def open_passages(collection: Collection) -> Passages:
    """The collection's paragraphs if it has spans, else its documents. Read a described collection's splits first."""
    return Paragraphs(collection) if collection.has_spans else WholeDocuments(collection)
