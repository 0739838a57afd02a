"""Reads candidate lists: one row per list, one row per pair, or a TREC run."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from reprlib import repr as shown
from typing import Any, NamedTuple

from bulk.errors import BulkError
from bulk.rows import Row, read_lines, read_rows
from keyblock.text.tokenizer import without_surrogates


class Given(NamedTuple):
    """A document of a list.

    Attributes:
        docid: its name; without one, its place in the list, from 0.
        text: None if the collection has it.
        score: from the first stage; None if the input has no score.
    """

    docid: str
    title: str = ""
    text: str | None = None
    score: float | None = None


class GivenList(NamedTuple):
    """A query with its candidates, in first-stage order.

    Attributes:
        qid: the query's name; without one, the query itself.
        query: the query's text; None if the collection has it.
        place: the file and line that it was read from, for error messages.
    """

    qid: str
    query: str | None
    documents: list[Given]
    place: str


def read_lists(paths: Sequence[Path]) -> Iterator[GivenList]:
    """The lists of several files. Raises BulkError, which names the line, for a malformed list or a repeated query."""
    return _each_once(found for path in paths for found in _file_lists(path))


def read_run(path: Path) -> Iterator[GivenList]:
    """The lists of a TREC run (``query Q0 document rank score tag``), best first; ties keep the file's order. Raises BulkError."""
    return _each_once(_run_lists(path))


def _each_once(lists: Iterable[GivenList]) -> Iterator[GivenList]:
    seen: set[str] = set()
    for found in lists:
        if found.qid in seen:
            problem = f"query {found.qid[:80]!r} was there before"
            raise BulkError(f"{found.place}: {problem}: keep the rows of a query together, in one file, each with the same 'query'")
        seen.add(found.qid)
        yield _checked(found)


def _checked(found: GivenList) -> GivenList:
    if found.query is not None and not found.query.strip():
        raise BulkError(f"{found.place}: the query is empty: say what to rank the documents for")
    if repeated := len(found.documents) - len({one.docid for one in found.documents}):
        raise BulkError(
            f"{found.place}: {repeated} documents of query {found.qid[:80]!r} have the docid of another: name each once"
        )
    return found


def _run_lists(path: Path) -> Iterator[GivenList]:
    for qid, lines in groupby(_run_lines(path), key=itemgetter(0)):
        (_, place, first), *rest = lines
        documents = [first, *(document for _, _, document in rest)]
        yield GivenList(qid, None, sorted(documents, key=lambda one: -(one.score or 0.0)), place)


def _run_lines(path: Path) -> Iterator[tuple[str, str, Given]]:
    """The query, place and document of each line."""
    for place, line in read_lines(path):
        fields = line.split()
        if len(fields) != 6:
            raise BulkError(f"{place}: has {len(fields)} fields, and a line of a TREC run has 6: query Q0 document rank score tag")
        yield fields[0], place, Given(fields[2], score=_number(place, fields[4]))


def _file_lists(path: Path) -> Iterator[GivenList]:
    for (qid, query, whole), rows in groupby(read_rows(path), key=_list_key):
        for list_rows in [[row] for row in rows] if whole else [list(rows)]:
            named = query if qid is None else qid
            if named is None:
                raise BulkError(f"{list_rows[0].place}: has neither 'query' nor 'qid': say what the documents are ranked for")
            documents = _row_documents(list_rows[0]) if whole else [(row.place, row.fields) for row in list_rows]
            yield GivenList(named, query, [_document(n, *one) for n, one in enumerate(documents)], list_rows[0].place)


def _list_key(row: Row) -> tuple[str | None, str | None, bool]:
    """The key that groups rows into lists: qid and query, and whether the row is a whole list."""
    qid, query = row.fields.get("qid"), _text(row.place, row.fields, "query")
    return None if qid is None else _name(row.place, "qid", qid), query, row.fields.get("documents") is not None


def _row_documents(row: Row) -> list[tuple[str, object]]:
    """The documents of a row that holds a whole list, each with its place."""
    given = row.fields["documents"]
    if not isinstance(given, list):
        raise BulkError(f"{row.place}: 'documents' must be a list of texts or objects, not {shown(given)}")
    return [(f"{row.place}, document {number}", one) for number, one in enumerate(given)]


def _document(number: int, place: str, given: object) -> Given:
    if isinstance(given, str):
        return Given(str(number), text=without_surrogates(given))
    if not isinstance(given, Mapping):
        raise BulkError(f"{place}: a document must be a text or an object, not {shown(given)}")
    named = next((given[name] for name in ("docid", "id") if given.get(name) is not None), None)
    docid = str(number) if named is None else _name(place, "docid", named)
    text, title = _text(place, given, "text"), _text(place, given, "title")
    if text is None and named is None:
        raise BulkError(f"{place}: the document has neither 'text' nor 'docid': give its text, or its name in the collection")
    return Given(docid, title or "", text, None if given.get("score") is None else _number(place, given["score"]))


def _text(place: str, fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise BulkError(f"{place}: {name!r} must be a text, not {shown(value)}")
    return None if value is None else without_surrogates(value)


def _name(place: str, field: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BulkError(f"{place}: {field!r} must be a text or a whole number, not {shown(value)}")
    return without_surrogates(str(value))


def _number(place: str, value: object) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BulkError(f"{place}: a score must be a finite number, not {value!r}")
    return number
