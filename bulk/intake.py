"""Turns the input into shards: lists that name documents by number, and each distinct document once.

Title and text identify a document: two names with the same title and text are one document. The lists are read as a stream. Memory
holds a digest of 16 bytes for each distinct document, and the names of the documents that a collection provides.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bulk.candidates import Given, GivenList, read_lists, read_run
from bulk.errors import BulkError
from bulk.options import Options
from bulk.rows import read_documents, read_queries
from bulk.tables import DOCUMENTS, LISTS, write_table
from bulk.work import Intake, Layout
from keyblock.prepared import content_digest

DOCUMENTS_PER_SHARD = 1000
CHARS_PER_SHARD = 1 << 24  # 16 million: a shard of very long documents holds fewer of them


class Shards:
    """Writes rows into one table after the other.

    Args:
        path: the path of a shard's table.
        schema: its columns.

    Attributes:
        sizes: sizes of the written shards.
        size: size of the open shard.
        n_rows: rows so far.
    """

    def __init__(self, path: Callable[[int], Path], schema: pa.Schema) -> None:
        self.sizes: list[int] = []
        self.size = self.n_rows = 0
        self._path, self._schema = path, schema
        self._open: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any], size: int = 1) -> None:
        """Add a row to the open shard."""
        self._open.append(row)
        self.size += size
        self.n_rows += 1

    def flush(self) -> None:
        """Write the open shard, unless it is empty."""
        if self._open:
            columns = {name: [row[name] for row in self._open] for name in self._schema.names}
            write_table(self._path(len(self.sizes)), columns, self._schema)
            self.sizes.append(self.size)
            self._open, self.size = [], 0


class Documents:
    """Numbers distinct documents in the order of their first appearance, and writes each to a shard."""

    def __init__(self, layout: Layout) -> None:
        self.shards = Shards(layout.documents, DOCUMENTS)
        self._numbers: dict[bytes, int] = {}
        self._chars = 0

    def number(self, title: str, text: str) -> int:
        """The document's number. A new document is written, too."""
        key = content_digest(title, text)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self.shards.add({"title": title, "text": text})
            self._chars += len(title) + len(text)
            if self.shards.size == DOCUMENTS_PER_SHARD or self._chars >= CHARS_PER_SHARD:
                self.shards.flush()
                self._chars = 0
        return self._numbers[key]


def take_in(options: Options, layout: Layout, on_pairs: Callable[[int], object] = int) -> Intake:
    """Read everything and write the shards. A list is never cut. Raises BulkError.

    Args:
        options: what to read.
        layout: where to write.
        on_pairs: called with the number of pairs of each list.
    """
    documents, lists = Documents(layout), Shards(layout.lists, LISTS)
    known, queries = ({}, {}) if options.collection is None else _read_collection(options, options.collection, documents)
    for given in _lists(options):
        query, n_pairs = _query(given, queries), len(given.documents)
        if options.fusion is not None and None in [one.score for one in given.documents]:
            raise BulkError(f"{given.place}: --fusion reads a 'score' of each document, and query {given.qid[:80]!r} lacks one")
        if lists.size + n_pairs > options.shard_pairs:
            lists.flush()
        rows = [
            {"docid": one.docid, "number": _number(one, given, known, documents), "score": one.score} for one in given.documents
        ]
        lists.add({"qid": given.qid, "query": query, "documents": rows}, n_pairs)
        on_pairs(n_pairs)
    lists.flush()
    documents.shards.flush()
    if not lists.n_rows:
        raise BulkError(f"{options.run or options.lists[0]}: names no candidate list: there is nothing to rank")
    intake = Intake(lists.sizes, documents.shards.sizes, lists.n_rows)
    intake.write(layout.work)
    return intake


def _lists(options: Options) -> Iterator[GivenList]:
    return read_lists(options.lists) if options.run is None else read_run(options.run)


def _read_collection(options: Options, collection: Path, documents: Documents) -> tuple[dict[str, int], dict[str, str]]:
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


def _number(one: Given, given: GivenList, known: Mapping[str, int], documents: Documents) -> int:
    if one.text is not None:
        return documents.number(one.title, one.text)
    if one.docid not in known:
        what = f"there is no text of document {one.docid[:80]!r} of query {given.qid[:80]!r}"
        raise BulkError(f"{given.place}: {what}: give it as 'text', or name a --collection whose corpus has it")
    return known[one.docid]
