"""Requests as bytes: documents as JSON, and bodies compressed above a size."""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from keyblock.wire import Document, DocumentLine

Compression = Literal["gzip", "zstd"]
Given = str | Mapping[str, Any] | Document
LEVEL = 1  # of both: a rerank waits for it
_LONE = re.compile("[\ud800-\udfff]")


def _zstd(content: bytes) -> bytes:
    import zstandard  # 24 MB, for those who ask for it

    return zstandard.ZstdCompressor(LEVEL).compress(content)


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, LEVEL, mtime=0),
    "zstd": _zstd,
}


def as_json(value: object) -> bytes:
    """JSON in UTF-8; a lone surrogate becomes U+FFFD, as the service reads it, so that offsets stay what they are.

    Raises TypeError and ValueError for what JSON cannot say.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", text).encode()


def as_documents(given: Iterable[Given] | Given) -> list[Mapping[str, Any]]:
    """The candidates as the wire has them, each an object; a single one is a list of one. Raises TypeError for anything else."""
    candidates: Iterable[Given] = [given] if isinstance(given, str | Mapping | BaseModel) else given
    return [as_document(candidate, f"documents[{number}]") for number, candidate in enumerate(candidates)]


def as_document(given: object, name: str) -> Mapping[str, Any]:
    """One document as an object. Raises TypeError, which calls it by its name."""
    if isinstance(given, str):
        return {"text": given}
    if isinstance(given, Document | DocumentLine):
        return given.model_dump(exclude_none=True)
    if isinstance(given, Mapping):
        return given
    raise TypeError(f"{name} must be a string, a mapping or a Document, not {type(given).__name__}")


def rerank_body(query: str, documents: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], bytes]:
    """Writes the body for the options it is given: of a retry only these change, and the documents may be large."""
    head, tail = as_json({"query": query})[:-1], b',"documents":' + as_json([_short(document) for document in documents]) + b"}"
    return lambda options: b",".join([head, *([as_json(options)[1:-1]] if options else [])]) + tail


def _short(document: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """A document that is nothing but a text, as a string; others may be any mapping, which JSON wants as a dictionary."""
    text = document.get("text")
    return text if isinstance(text, str) and len(document) == 1 else dict(document)


def compressed(content: bytes, how: Compression | None, least: int) -> tuple[bytes, dict[str, str]]:
    """The body and the headers that say how it is compressed, where it is large enough for that to be worth it."""
    if how is None or len(content) < least:
        return content, {}
    return COMPRESS[how](content), {"content-encoding": how}
