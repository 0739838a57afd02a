"""Finds judged passages in the documents they were taken from: BeST's gold passages (section 4, BERT (Gold P)).

MS MARCO's relevant documents are those that hold a relevant passage, but passages and documents were cleaned separately. A passage
is gold only if its document holds it word for word: 58% of the passages in the paper.
"""

import re
from collections.abc import Iterator, Mapping

from training.collections.types import Document, Grades, Span


def find_passage(text: str, passage: str) -> tuple[int, int] | None:
    """Start and end of the first place where the passage's words stand in a row, with any white space between; None without one."""
    words = passage.split()
    if not words:
        return None
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return found.span() if found else None


class AlignedSpans(Mapping[str, list[Span]]):
    """Gold passages by query. A query's passages are searched at its first look-up.

    Args:
        relevant: grades of documents by query.
        judged: grades of passages by query.
        documents: the documents by id.
        passages: the passages by id.
    """

    def __init__(
        self, relevant: Grades, judged: Grades, documents: Mapping[str, Document], passages: Mapping[str, Document]
    ) -> None:
        self.relevant = relevant
        self.judged = judged
        self.documents = documents
        self.passages = passages
        self._found: dict[str, list[Span]] = {}

    def __getitem__(self, query: str) -> list[Span]:
        if query not in self._found:
            self._found[query] = self._look(query)
        if not self._found[query]:
            raise KeyError(query)
        return self._found[query]

    def _look(self, query: str) -> list[Span]:
        texts = [self.passages[passage].text for passage in _positive(self.judged, query) if passage in self.passages]
        spans = []
        for doc_id in (d for d in _positive(self.relevant, query) if d in self.documents):
            places = (find_passage(self.documents[doc_id].text, text) for text in texts)
            spans += [Span(doc_id, *place) for place in places if place]
        return spans

    def __iter__(self) -> Iterator[str]:
        return (query for query in self.relevant if query in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _positive(grades: Grades, query: str) -> list[str]:
    return [name for name, grade in grades.get(query, {}).items() if grade > 0]
