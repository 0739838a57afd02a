"""Reads a collection's texts in the layout of training: corpus.jsonl (or corpus.parquet) and queries.jsonl, gzipped or not."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from bulk.errors import BulkError
from bulk.rows import Row, read_rows
from keyblock.text.tokenizer import without_surrogates

KINDS = (".jsonl.gz", ".jsonl", ".parquet")


class Document(NamedTuple):
    """A document of a collection."""

    docid: str
    title: str
    text: str


def read_documents(collection: Path, wanted: Collection[str]) -> Iterator[Document]:
    """The wanted documents, in the order of the collection. Raises BulkError."""
    for row in read_rows(find(collection, "corpus")):
        if (docid := _field(row, "_id")) in wanted:
            title = row.fields.get("title")
            yield Document(docid, without_surrogates(title) if isinstance(title, str) else "", _field(row, "text"))


def read_queries(collection: Path) -> dict[str, str]:
    """The text of each query, by name. Raises BulkError."""
    return {_field(row, "_id"): _field(row, "text") for row in read_rows(find(collection, "queries"))}


def find(collection: Path, name: str) -> Path:
    """The collection's file of that name, in any of `KINDS`. Raises BulkError if there is none."""
    if (path := look_for(collection, name)) is None:
        names = ", ".join(f"{name}{kind}" for kind in KINDS)
        raise BulkError(f"{collection}: has none of {names}; name the collection's directory")
    return path


def look_for(collection: Path, name: str) -> Path | None:
    """The collection's file of that name, or None."""
    return next((path for kind in KINDS if (path := collection / f"{name}{kind}").is_file()), None)


def _field(row: Row, name: str) -> str:
    value = row.fields.get(name)
    if not isinstance(value, str):
        raise BulkError(f"{row.place}: has no {name!r} that is a text")
    return without_surrogates(value)
