"""What a collection consists of, whatever it is read from, and the errors of reading it."""

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


class Plan(NamedTuple):
    """What reading a collection would take.

    Attributes:
        reads: what would be read, a line each.
        brings: files that are not there, and that no download brings.
    """

    reads: list[str]
    brings: list[str]


class Parts(ABC):
    """What a collection is read from. Each part is read when asked; CollectionError for what is not there, FileError for damage."""

    corpus: str = "the documents"
    topics: str = "the queries"

    @property
    @abstractmethod
    def name(self) -> str:
        """What the collection is called."""

    @property
    @abstractmethod
    def documents(self) -> Mapping[str, Document]:
        """Documents by id; where there are millions they stay on disk and each look-up reads one."""

    @property
    @abstractmethod
    def queries(self) -> Mapping[str, str]:
        """Query texts by id, at least those of every split asked for so far."""

    @property
    @abstractmethod
    def qrels(self) -> Grades:
        """Grades by query and document, at least those of every split asked for so far."""

    @property
    @abstractmethod
    def spans(self) -> Mapping[str, list[Span]]:
        """Gold passages by query; none where nothing says them."""

    @property
    @abstractmethod
    def has_spans(self) -> bool:
        """Whether anything says gold passages; nothing is read for it."""

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
        """Those of the ids that the corpus has, one string a document; a store on disk is not asked: a run may name millions."""

    @abstractmethod
    def plan(self, splits: Sequence[str]) -> Plan:
        """What would be read for these splits, without downloading anything; what is here is read, but for a store's documents.

        Raises CollectionError for a split, a field or candidates that cannot be had.
        """
