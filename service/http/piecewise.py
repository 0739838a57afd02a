"""Reading a large JSON object piece by piece, so that no step holds the interpreter lock for long.

orjson holds the lock for the whole of a body: 220 ms for 120 MB. Here a scan in short steps finds the members of the body
and the elements of its arrays, and orjson decodes one at a time; equal to decoding at once, which the tests compare.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from service.errors import Path, RequestError

_STRUCTURE = re.compile(rb'["{}\[\]]')
_SCALAR = re.compile(rb"[^\s,\]}]+")
_SPACES = re.compile(rb"[ \t\n\r]*")
_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_WINDOW = 1 << 20  # bytes a regular expression may run over in one step
_DEEPEST = 200
_UNREAD_BYTES = 1 << 20  # of a value that is neither a document nor a text nor a query; no option is that large
_DOCUMENT_MEMBERS = 64
_STEPS = 1 << 18  # members, brackets and strings there may be in a body; each is a step in Python
_STEPS_A_DOCUMENT = 128  # where that is more
_LONGEST_NAME = 40  # characters of a member's name that are repeated in a message
_SPACE = frozenset(b" \t\n\r")
_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = b'"\\,:[]{}'

Decode = Callable[[memoryview, int], Any]
"""Decodes one JSON value, given its bytes and where they start in the body; raises RequestError."""


class Pieces:
    """One body: bytes that should be a JSON object.

    Args:
        body: the bytes.
        decode: reads one piece.
        documents: names of the members that hold documents; only those are limited.
        longest_array: documents there may be.
        longest_string: characters a document may have; a much longer one is refused undecoded.
    """

    def __init__(
        self, body: bytearray, decode: Decode, documents: Collection[str], longest_array: int, longest_string: int
    ) -> None:
        self._body = body
        self._view = memoryview(body)
        self._decode = decode
        self._documents = documents
        self._longest_array = longest_array
        self._longest_string = longest_string
        self._steps = max(_STEPS, _STEPS_A_DOCUMENT * longest_array)

    def load(self) -> dict[str, Any]:
        """The object. Raises RequestError: 400 where the body is not JSON, 422 where it is no object or something is too long."""
        at = self._skip(0)
        if self._at(at) != _OPEN:
            raise RequestError(422, f"the body must be a JSON object, and it starts with {chr(self._body[at])!r}")
        members, at = self._object(at, ())
        if (at := self._skip(at)) < len(self._body):
            raise _not_json("something follows the object", at)
        return members

    def _value(self, at: int, path: Path) -> tuple[Any, int]:
        """The value at `at`, and where it ends."""
        mark = self._at(at)
        documents = path[0] in self._documents
        if mark == _OPEN_LIST and len(path) == 1 and documents:
            return self._array(at, path)
        end = self._end(at, path)
        if mark == _OPEN and end - at > _WINDOW and len(path) == 2 and documents:
            return self._object(at, path)
        if mark == _QUOTE and (self._is_document(path) or path == ("query",)):
            self._check_length(at, end, path)
        elif end - at > _UNREAD_BYTES:
            raise RequestError(422, f"holds {(end - at) / 2**20:.1f} MiB; no option is that large", path)
        return self._decode(self._view[at:end], at), end

    def _object(self, at: int, path: Path) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self._skip(at + 1)
        while self._more(at, _CLOSE, first=not members):
            self._step(path)
            if path and len(members) == _DOCUMENT_MEMBERS:
                raise RequestError(422, f"has more than {_DOCUMENT_MEMBERS} members, the limit for a large one", path)
            at = self._skip(at + bool(members))
            if self._at(at) != _QUOTE:
                raise _not_json("expected a member's name in quotes", at)
            end = self._string_end(at)
            name = self._decode(self._view[at:end], at)
            if self._at(colon := self._skip(end)) != _COLON:
                raise _not_json("expected ':'", colon)
            members[name], at = self._value(self._skip(colon + 1), (*path, name[:_LONGEST_NAME]))
            at = self._skip(at)
        return members, at + 1

    def _array(self, at: int, path: Path) -> tuple[list[Any], int]:
        elements: list[Any] = []
        at = self._skip(at + 1)
        while self._more(at, _CLOSE_LIST, first=not elements):
            if len(elements) == self._longest_array and path[0] in self._documents:
                raise RequestError(422, f"has more than {self._longest_array} elements, the limit", path)
            element, at = self._value(self._skip(at + bool(elements)), (*path, len(elements)))
            elements.append(element)
            at = self._skip(at)
        return elements, at + 1

    def _more(self, at: int, close: int, *, first: bool) -> bool:
        """Whether another member or element follows; `at` is on its first byte, or on the comma before it."""
        mark = self._at(at)
        if mark == close:
            return False
        if not first and mark != _COMMA:
            raise _not_json(f"expected ',' or '{chr(close)}'", at)
        return True

    def _is_document(self, path: Path) -> bool:
        """Whether a string at `path` is a document, or its text or title."""
        return path[0] in self._documents and (isinstance(path[-1], int) or path[-1] in (path[0], "text", "title"))

    def _check_length(self, start: int, end: int, path: Path) -> None:
        """Refuse a string that has too many characters however they are written; a character takes 4 bytes, or 6 an escape."""
        if end - start <= self._longest_string or path == ("query",):
            return
        escapes = sum(self._body.count(b"\\", at, min(at + _WINDOW, end)) for at in range(start, end, _WINDOW))
        at_least = (end - start - 2 - 6 * escapes) // 4 + escapes // 2
        if at_least > self._longest_string:
            raise RequestError(422, f"has at least {at_least} characters, limit {self._longest_string}", path)

    def _step(self, path: Path) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise RequestError(422, "there are too many members, lists and strings up to here", path)

    def _end(self, at: int, path: Path) -> int:
        """Where the value that starts at `at` ends."""
        first = self._at(at)
        if first == _QUOTE:
            return self._string_end(at)
        if first in (_OPEN, _OPEN_LIST):
            return self._nested_end(at, path)
        scalar = _SCALAR.match(self._body, at, at + _WINDOW)
        if scalar is None:
            raise _not_json("expected a value", at)
        return scalar.end()

    def _string_end(self, at: int) -> int:
        body, start = self._body, at
        quote = body.find(b'"', at + 1)
        if quote >= 0 and body[quote - 1] != _BACKSLASH:
            return quote + 1
        at = start + 1 if quote >= 0 else len(body)
        while at < len(body):
            if found := _TEXT.match(body, at, at + _WINDOW):
                at = found.end()
            if body[at : at + 1] == b'"':
                return at + 1
            at += 2 * (body[at : at + 1] == b"\\")  # an escape that the window cut
        raise _not_json("a string is not closed", start)

    def _nested_end(self, at: int, path: Path) -> int:
        start, depth = at, 0
        while (at := self._structure(at)) >= 0:
            self._step(path)
            mark = self._body[at]
            if mark == _QUOTE:
                at = self._string_end(at)
                continue
            depth += 1 if mark in (_OPEN, _OPEN_LIST) else -1
            at += 1
            if not depth:
                return at
            if depth > _DEEPEST:
                raise _not_json(f"nested more than {_DEEPEST} deep", at)
        raise _not_json("a list or object is not closed", start)

    def _structure(self, at: int) -> int:
        for start in range(at, len(self._body), _WINDOW):
            if found := _STRUCTURE.search(self._body, start, start + _WINDOW):
                return found.start()
        return -1

    def _skip(self, at: int) -> int:
        body, end = self._body, len(self._body)
        while at < end and body[at] in _SPACE:
            at = found.end() if (found := _SPACES.match(body, at, at + _WINDOW)) else at + 1
        return at

    def _at(self, at: int) -> int:
        if at >= len(self._body):
            raise _not_json("it ends too early", at)
        return self._body[at]


def _not_json(problem: str, at: int) -> RequestError:
    return RequestError(400, f"the body is not JSON: {problem} (byte {at})")
