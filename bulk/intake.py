"""Turns the input into shards: lists that name documents by number, and each distinct document once.

Title and text identify a document: two names with the same title and text are one document. The lists are read as a stream. Memory
holds a digest of 16 bytes for each distinct document, and the names of the documents that a collection provides.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bulk.candidates import Given, GivenList, read_lists, read_run
from bulk.collection import read_documents, read_queries
from bulk.errors import BulkError
from bulk.options import Options
from bulk.schemas import DOCUMENTS, STORED_LISTS
from bulk.tables import write_table
from bulk.work import Intake, Layout
from keyblock.prepared import content_digest

DOCUMENTS_PER_SHARD = 1000
CHARS_PER_SHARD = 1 << 24  # 16 million: a shard of very long documents holds fewer of them


class DocumentShards:
    """Writes distinct documents and numbers them in the order of their first appearance.

    Attributes:
        counts: documents in each written shard.
    """

    def __init__(self, layout: Layout) -> None:
        self.counts: list[int] = []
        self._layout = layout
        self._numbers: dict[bytes, int] = {}
        self._open: dict[str, list[str]] = {"title": [], "text": []}
        self._chars = 0

    def number(self, title: str, text: str) -> int:
        """The document's number. A new document is written, too."""
        key = content_digest(title, text)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._numbers)
            self._append(title, text)
        return known

    def flush(self) -> None:
        """Write the last shard."""
        if self._open["text"]:
            write_table(self._layout.documents(len(self.counts)), self._open, DOCUMENTS)
            self.counts.append(len(self._open["text"]))
            self._open, self._chars = {"title": [], "text": []}, 0

    def _append(self, title: str, text: str) -> None:
        self._open["title"].append(title)
        self._open["text"].append(text)
        self._chars += len(title) + len(text)
        if len(self._open["text"]) == DOCUMENTS_PER_SHARD or self._chars >= CHARS_PER_SHARD:
            self.flush()


class ListShards:
    """Writes lists in the order of the input, up to a number of pairs in each shard. A list is never cut.

    Attributes:
        pairs: pairs in each written shard.
        n_lists: written lists.
    """

    def __init__(self, layout: Layout, pairs: int) -> None:
        self.pairs: list[int] = []
        self.n_lists = 0
        self._layout, self._max_pairs = layout, pairs
        self._open: list[dict[str, Any]] = []
        self._count = 0

    def add(self, qid: str, query: str, documents: list[dict[str, Any]]) -> None:
        """Add a list."""
        if self._open and self._count + len(documents) > self._max_pairs:
            self.flush()
        self._open.append({"qid": qid, "query": query, "documents": documents})
        self._count += len(documents)

    def flush(self) -> None:
        """Write the last shard."""
        if self._open:
            columns = {name: [row[name] for row in self._open] for name in STORED_LISTS.names}
            write_table(self._layout.lists(len(self.pairs)), columns, STORED_LISTS)
            self.pairs.append(self._count)
            self.n_lists += len(self._open)
            self._open, self._count = [], 0


def take_in(options: Options, layout: Layout, on_pairs: Callable[[int], object] = int) -> Intake:
    """Read everything and write the shards. Raises BulkError.

    Args:
        options: what to read.
        layout: where to write.
        on_pairs: called with the number of pairs of each list.
    """
    documents, lists = DocumentShards(layout), ListShards(layout, options.shard_pairs)
    known, queries = ({}, {}) if options.collection is None else _read_collection(options, options.collection, documents)
    for given in _lists(options):
        query = _query(given, queries)
        lists.add(given.qid, query, [_row(one, _number(one, given, known, documents)) for one in given.documents])
        on_pairs(len(given.documents))
    lists.flush()
    documents.flush()
    if not lists.n_lists:
        raise BulkError(f"{options.run or options.lists[0]}: names no candidate list: there is nothing to rank")
    intake = Intake(lists.pairs, documents.counts, lists.n_lists)
    intake.write(layout.work)
    return intake


def _lists(options: Options) -> Iterator[GivenList]:
    return read_lists(options.lists) if options.run is None else read_run(options.run)


def _read_collection(options: Options, collection: Path, documents: DocumentShards) -> tuple[dict[str, int], dict[str, str]]:
    """From the collection: the numbers of documents whose text the lists lack, and the queries if a list lacks its query's text."""
    wanted: set[str] = set()
    queries_wanted = False
    for given in _lists(options):
        queries_wanted = queries_wanted or given.query is None
        wanted.update(one.docid for one in given.documents if one.text is None)
    found = read_documents(collection, wanted) if wanted else ()
    known = {docid: documents.number(title, text) for docid, title, text in found}
    return known, read_queries(collection) if queries_wanted else {}


def _query(given: GivenList, queries: Mapping[str, str]) -> str:
    query = queries.get(given.qid) if given.query is None else given.query
    if query is None or not query.strip():
        what = f"there is no text of query {given.qid[:80]!r}"
        raise BulkError(f"{given.place}: {what}: give it as 'query', or name a --collection whose queries have it")
    return query


def _number(one: Given, given: GivenList, known: Mapping[str, int], documents: DocumentShards) -> int:
    if one.text is not None:
        return documents.number(one.title, one.text)
    if one.docid not in known:
        what = f"there is no text of document {one.docid[:80]!r} of query {given.qid[:80]!r}"
        raise BulkError(f"{given.place}: {what}: give it as 'text', or name a --collection whose corpus has it")
    return known[one.docid]


def _row(one: Given, number: int) -> dict[str, Any]:
    return {"docid": one.docid, "number": number, "score": one.score}
