"""Reads a large JSON object piece by piece, so that no step holds the interpreter lock for long and no value grows without limit.

orjson holds the lock for the whole of a body: 220 ms for 120 MB. Here a scan in short steps finds the members of an object and
the elements of its arrays, and orjson decodes one at a time. The scan decodes nothing: what a value holds may be invalid JSON,
which decoding finds. The tests compare the result with decoding at once. A large value that no option has is refused undecoded:
63 MiB of empty lists would take 2.5 GB.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from keyblock.ranking.warnings import LONGEST_SHOWN
from service.errors import Path, RequestError
from service.settings import Limits

STEPS = 1 << 18  # limit of members, brackets and strings in an object
STEPS_A_DOCUMENT = 128  # the limit per document, if that gives more steps
_UNREAD_BYTES = 1 << 20  # limit of a value other than a document, a text or a query; no option is that large
DOCUMENT_MEMBERS = 256
_TEXTS = ("text", "title")
WINDOW = 1 << 20  # bytes that a regular expression may search in one step
OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = b"[]{}"
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_SPACE = frozenset(b" \t\n\r")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_SCALAR = re.compile(rb"[^\s,\]}]+")
_SPACES = re.compile(rb"[ \t\n\r]*")
_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_DEEPEST = 200
MOST_ELEMENTS = 1 << 21  # such as the numbers of vectors: decoded they take 64 MB
MOST_OPTION_VALUES = 1 << 14  # of all options together, beside a score for each document

Decode = Callable[[memoryview, int], Any]
"""Decodes one JSON value, given its bytes and where they start in the body; raises RequestError."""
Value = tuple[Any, int]
"""A value and the place where it ends."""


class Scanner:
    """Finds the ends of values in one text.

    Args:
        body: the text.
        steps: limit of members, brackets and strings; each is a step in Python.
        elements: limit of the elements in nested lists and objects.

    Every method raises RequestError: 400 if the text is not JSON, 422 if there are more steps or elements.
    """

    def __init__(self, body: bytearray, steps: int, elements: int = MOST_ELEMENTS) -> None:
        self._body = body
        self._steps = steps
        self._elements = elements

    def byte(self, at: int) -> int:
        """The byte at a place."""
        if at >= len(self._body):
            raise not_json("it ends too early", at)
        return self._body[at]

    def is_string(self, at: int) -> bool:
        """Whether a string starts here."""
        return self.byte(at) == _QUOTE

    def skip(self, at: int) -> int:
        """The next place that is not a space."""
        body, end = self._body, len(self._body)
        while at < end and body[at] in _SPACE:
            at = found.end() if (found := _SPACES.match(body, at, at + WINDOW)) else at + 1
        return at

    def step(self, path: Path, elements: int = 0) -> None:
        """Count one step, and the elements that it passes; `path` is the place, for the message."""
        self._steps -= 1
        self._elements -= elements
        if self._steps < 0 or self._elements < 0:
            raise RequestError(422, "there are too many members, lists and strings up to here", path)

    def has_more(self, at: int, close: int, *, first: bool) -> bool:
        """Whether another member or element follows; `at` is on its first byte, or on the comma before it."""
        mark = self.byte(at)
        if mark == close:
            return False
        if not first and mark != _COMMA:
            raise not_json(f"expected ',' or '{chr(close)}'", at)
        return True

    def name_end(self, at: int) -> int:
        """The end of the member's name that starts here."""
        if not self.is_string(at):
            raise not_json("expected a member's name in quotes", at)
        return self._string_end(at)

    def value_after(self, name_end: int) -> int:
        """The start of a member's value."""
        if self.byte(colon := self.skip(name_end)) != _COLON:
            raise not_json("expected ':'", colon)
        return self.skip(colon + 1)

    def end(self, at: int, path: Path) -> int:
        """The end of the value that starts here."""
        first = self.byte(at)
        if first == _QUOTE:
            return self._string_end(at)
        if first in (OPEN, OPEN_LIST):
            return self._nested_end(at, path)
        scalar = _SCALAR.match(self._body, at, at + WINDOW)
        if scalar is None:
            raise not_json("expected a value", at)
        return scalar.end()

    def _string_end(self, at: int) -> int:
        body, start = self._body, at
        quote = body.find(b'"', at + 1)
        if quote >= 0 and body[quote - 1] != _BACKSLASH:
            return quote + 1
        at = start + 1 if quote >= 0 else len(body)
        while at < len(body):
            if found := _TEXT.match(body, at, at + WINDOW):
                at = found.end()
            if body[at : at + 1] == b'"':
                return at + 1
            at += 2 * (body[at : at + 1] == b"\\")  # an escape that the window cut
        raise not_json("a string is not closed", start)

    def _nested_end(self, at: int, path: Path) -> int:
        start, depth = at, 0
        while (at := self._structure(at, path)) >= 0:
            mark = self._body[at]
            if mark == _QUOTE:
                at = self._string_end(at)
                continue
            depth += 1 if mark in (OPEN, OPEN_LIST) else -1
            at += 1
            if not depth:
                return at
            if depth > _DEEPEST:
                raise not_json(f"nested more than {_DEEPEST} deep", at)
        raise not_json("a list or object is not closed", start)

    def _structure(self, at: int, path: Path) -> int:
        """The next quote or bracket, in as many steps as windows are searched; -1 for none."""
        for start in range(at, len(self._body), WINDOW):
            found = _STRUCTURE.search(self._body, start, start + WINDOW)
            end = found.start() if found else start + WINDOW
            self.step(path, self._body.count(b",", start, end))
            if found:
                return end
        return -1


class Pieces:
    """One JSON object in bytes.

    Args:
        body: the bytes.
        limits: of documents; a text that is much longer is refused undecoded.
        decode: reads one piece.
    """

    def __init__(self, body: bytearray, limits: Limits, decode: Decode) -> None:
        self._body = body
        self._view = memoryview(body)
        self._limits = limits
        self._decode = decode
        option_values = MOST_OPTION_VALUES + limits.max_documents
        self._scan = Scanner(body, max(STEPS, STEPS_A_DOCUMENT * limits.max_documents))
        self._scan_option = Scanner(body, 2 * option_values + len(body) // WINDOW, option_values)

    def request(self, documents: Collection[str]) -> dict[str, Any]:
        """Read the object as a request, whose members `documents` hold lists of documents.

        Raises RequestError: 400 if it is not JSON, 422 if it is no object or a part is too long.
        """

        def member(at: int, path: Path) -> Value:
            if path == ("query",) and self._scan.is_string(at):  # a long one is cut with a warning, and not refused
                return self._decoded(at, self._scan.end(at, path))
            if path[0] not in documents:
                return self._option(at, path)
            return self._text(at, path) if self._scan.byte(at) != OPEN_LIST else self._array(at, path)

        return self._read_object(member, "the body")

    def line(self) -> dict[str, Any]:
        """Read the object as one document to store. Raises RequestError as `request` does."""
        return self._read_object(
            lambda at, path: self._text(at, path) if path[-1] in _TEXTS else self._option(at, path), "the line"
        )

    def _read_object(self, member: Callable[[int, Path], Value], what: str) -> dict[str, Any]:
        """Read the whole object; nothing may follow it."""
        at = self._scan.skip(0)
        if self._scan.byte(at) != OPEN:
            raise RequestError(422, f"{what} must be a JSON object, and it starts with {chr(self._body[at])!r}")
        members, at = self._object(at, (), member)
        if (at := self._scan.skip(at)) < len(self._body):
            raise not_json("something follows the object", at)
        return members

    def _object(self, at: int, path: Path, member: Callable[[int, Path], Value]) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        scan = self._scan
        at = scan.skip(at + 1)
        while scan.has_more(at, CLOSE, first=not members):
            scan.step(path)
            if path and len(members) == DOCUMENT_MEMBERS:
                raise RequestError(422, f"has more than {DOCUMENT_MEMBERS} members, the limit", path)
            at = scan.skip(at + bool(members))
            end = scan.name_end(at)
            name, _ = self._decoded(at, end)
            members[name], at = member(scan.value_after(end), (*path, name[:LONGEST_SHOWN]))
            at = scan.skip(at)
        return members, at + 1

    def _array(self, at: int, path: Path) -> tuple[list[Any], int]:
        elements: list[Any] = []
        longest = self._limits.max_documents
        at = self._scan.skip(at + 1)
        while self._scan.has_more(at, CLOSE_LIST, first=not elements):
            if len(elements) == longest:
                raise RequestError(422, f"has more than {longest} elements, the limit", path)
            element, at = self._document(self._scan.skip(at + bool(elements)), (*path, len(elements)))
            elements.append(element)
            at = self._scan.skip(at)
        return elements, at + 1

    def _document(self, at: int, path: Path) -> Value:
        if self._scan.byte(at) != OPEN:
            return self._text(at, path)
        end = self._scan.end(at, path)
        if end - at > WINDOW:
            return self._object(at, path, self._field)
        return self._decoded(at, end)

    def _field(self, at: int, path: Path) -> Value:
        """A member of a document, or of a query with documents of its own."""
        if path[0] == "queries" and path[-1] == "documents" and self._scan.byte(at) == OPEN_LIST:
            return self._array(at, path)
        return self._text(at, path) if path[-1] in _TEXTS else self._value(at, path, self._scan)

    def _text(self, at: int, path: Path) -> Value:
        """A value that should be a document's text."""
        if not self._scan.is_string(at):
            return self._value(at, path, self._scan)
        end = self._scan.end(at, path)
        self._check_length(at, end, path)
        return self._decoded(at, end)

    def _check_length(self, start: int, end: int, path: Path) -> None:
        """Refuse a string that certainly has too many characters; a character takes at most 4 bytes, or 6 per escape."""
        most = self._limits.max_document_chars
        if end - start <= most:
            return
        escapes = sum(self._body.count(b"\\", at, min(at + WINDOW, end)) for at in range(start, end, WINDOW))
        at_least = (end - start - 2 - 6 * escapes) // 4 + escapes // 2
        if at_least > most:
            raise RequestError(422, f"has at least {at_least} characters, limit {most}", path)

    def _option(self, at: int, path: Path) -> Value:
        """A member of the whole object that is no text, document or query."""
        self._scan_option.step(path, 1)
        return self._value(at, path, self._scan_option)

    def _value(self, at: int, path: Path, scan: Scanner) -> Value:
        """Any other value."""
        end = scan.end(at, path)
        if end - at > _UNREAD_BYTES:
            raise RequestError(422, f"holds {(end - at) / 2**20:.1f} MiB; no option is that large", path)
        return self._decoded(at, end)

    def _decoded(self, at: int, end: int) -> Value:
        return self._decode(self._view[at:end], at), end


def not_json(problem: str, at: int) -> RequestError:
    """The error for a text that is not JSON at the byte `at`."""
    return RequestError(400, f"the body is not JSON: {problem} (byte {at})")
