"""Requests as bytes: documents as JSON, and bodies compressed above a size."""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from reprlib import repr as shown
from typing import Any, Literal

from pydantic import BaseModel

from keyblock.wire import Document, DocumentLine

Compression = Literal["gzip"]
Given = str | Mapping[str, Any] | Document
LEVEL = 1  # of the compression: a rerank waits for it
_LONE = re.compile("[\ud800-\udfff]")


def as_json(value: object) -> bytes:
    """JSON in UTF-8; a lone surrogate becomes U+FFFD, as in the service, so that offsets do not change.

    Raises TypeError and ValueError for values that JSON cannot represent.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return without_lone(text).encode()


def without_lone(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, as the service reads it."""
    return _LONE.sub("\ufffd", text)


def as_documents(given: Iterable[Given | None] | Given) -> list[Mapping[str, Any]]:
    """The candidates as JSON objects; a single one becomes a list of one, None an empty text. Raises TypeError for others."""
    candidates: Iterable[Given | None] = [given] if isinstance(given, str | Mapping | BaseModel) else given
    return [
        as_document("" if candidate is None else candidate, f"documents[{number}]") for number, candidate in enumerate(candidates)
    ]


def as_document(given: object, name: str) -> Mapping[str, Any]:
    """One document as a JSON object. Raises TypeError, whose message calls it `name`."""
    if isinstance(given, str):
        return {"text": given}
    if isinstance(given, Document | DocumentLine):
        return given.model_dump(exclude_unset=True)
    if isinstance(given, Mapping):
        return given
    raise TypeError(f"{name} must be a string, a mapping or a Document, not {shown(given)}")


def rerank_body(query: str, documents: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], bytes]:
    """A function that writes the body for its options: a retry changes only these, and the documents may be large."""
    head, tail = as_json({"query": query})[:-1], b',"documents":' + as_json([_short(document) for document in documents]) + b"}"
    return lambda options: b",".join([head, *([as_json(options)[1:-1]] if options else [])]) + tail


def _short(document: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """A document with only a text as a string; any other mapping as a dictionary, as JSON needs it."""
    text = document.get("text")
    return text if isinstance(text, str) and len(document) == 1 else dict(document)


def compressed(content: bytes, how: Compression | None, least: int) -> tuple[bytes, dict[str, str]]:
    """The body, compressed if it has at least `least` bytes, and the headers that name the compression."""
    if how is None or len(content) < least:
        return content, {}
    return gzip.compress(content, LEVEL, mtime=0), {"content-encoding": how}
