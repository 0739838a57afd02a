"""The parts of a collection, whatever its source, and the errors of reading it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class FileError(ValueError):
    """A data file is damaged; one line that names the file."""


class CollectionError(FileError):
    """A part of a collection is missing, or its parts do not fit together; the message is one line for a person."""


class Document(NamedTuple):
    """A document as the collection holds it."""

    doc_id: str
    title: str
    text: str


class Span(NamedTuple):
    """A gold passage: offsets in Unicode code points into the document's text."""

    doc_id: str
    start: int
    end: int


Grades = dict[str, dict[str, int]]
"""Grades by query and document."""

Run = dict[str, dict[str, float]]
"""Scores by query and document; a query's documents are in rank order."""


class Parts(ABC):
    """The reader of a collection. Each part is read at its first use.

    Every member raises CollectionError for a missing part, FileError for a damaged one.
    """

    corpus: str = "the documents"
    topics: str = "the queries"

    @property
    @abstractmethod
    def name(self) -> str:
        """The collection's name."""

    @property
    @abstractmethod
    def documents(self) -> Mapping[str, Document]:
        """Documents by id; a large collection stays on disk, and each look-up reads one document."""

    @property
    @abstractmethod
    def queries(self) -> Mapping[str, str]:
        """Query texts by id, at least those of every split that was read so far."""

    @property
    @abstractmethod
    def qrels(self) -> Grades:
        """Grades by query and document, at least those of every split that was read so far."""

    @property
    @abstractmethod
    def spans(self) -> Mapping[str, list[Span]]:
        """Gold passages by query; empty for a collection without any."""

    @property
    @abstractmethod
    def has_spans(self) -> bool:
        """Whether the collection has gold passages; nothing is read to find out."""

    @abstractmethod
    def split(self, name: str) -> list[str]:
        """The query ids of a split; at least one."""

    @abstractmethod
    def has_run(self, split: str) -> bool:
        """Whether there is a first-stage run of a split, damaged or not; without one all documents are searched."""

    @abstractmethod
    def run(self, split: str) -> Run:
        """The first-stage run of a split; of at least one query."""

    @abstractmethod
    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """The ids that the corpus has; equal ids share one string. A store on disk is not searched: a run may name millions."""
