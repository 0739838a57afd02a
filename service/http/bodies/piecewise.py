"""Reads a large JSON object piece by piece, so that no step holds the interpreter lock for long and no value grows without limit.

orjson holds the lock for the whole of a body: 220 ms for 120 MB. Here a scan in short steps (`service.http.bodies.scanning`)
finds the members of an object and the elements of its arrays, and orjson decodes one at a time. The tests compare the result with
decoding at once. A large value that no option has is refused undecoded: 63 MiB of empty lists would take 2.5 GB.
"""

from collections.abc import Callable, Collection
from typing import Any

from keyblock.ranking.warnings import LONGEST_SHOWN
from service.errors import Path, RequestError
from service.http.bodies import scanning
from service.http.bodies.scanning import CLOSE, CLOSE_LIST, OPEN, OPEN_LIST, Scanner, not_json

STEPS = 1 << 18  # limit of members, brackets and strings in an object
STEPS_A_DOCUMENT = 128  # the limit per document, if that gives more steps
_UNREAD_BYTES = 1 << 20  # limit of a value other than a document, a text or a query; no option is that large
DOCUMENT_MEMBERS = 256
_TEXTS = ("text", "title")

Decode = Callable[[memoryview, int], Any]
"""Decodes one JSON value, given its bytes and where they start in the body; raises RequestError."""
Value = tuple[Any, int]
"""A value and the place where it ends."""


class Pieces:
    """One JSON object in bytes.

    Args:
        body: the bytes.
        decode: reads one piece.
        longest_text: characters a document's text may have; a much longer one is refused undecoded.
        steps: limit of members, brackets and strings.
        option_values: limit of the values in all options together.
    """

    def __init__(self, body: bytearray, decode: Decode, longest_text: int, steps: int = STEPS, option_values: int = STEPS) -> None:
        self._body = body
        self._view = memoryview(body)
        self._decode = decode
        self._longest_text = longest_text
        self._longest_array = 0
        self._scan = Scanner(body, steps)
        self._scan_option = Scanner(body, 2 * option_values + len(body) // scanning.WINDOW, option_values)

    def request(self, documents: Collection[str], longest_array: int) -> dict[str, Any]:
        """Read the object as a request; its members `documents` hold lists of at most `longest_array` documents.

        Raises RequestError: 400 if it is not JSON, 422 if it is no object or a part is too long.
        """
        self._longest_array = longest_array

        def member(at: int, path: Path) -> Value:
            if path == ("query",) and self._scan.is_string(at):  # a long one is cut with a warning, and not refused
                end = self._scan.end(at, path)
                return self._decode(self._view[at:end], at), end
            if path[0] not in documents:
                return self._option(at, path)
            if self._scan.byte(at) != OPEN_LIST:
                return self._text(at, path)
            return self._array(at, path, longest_array)

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
            name = self._decode(self._view[at:end], at)
            members[name], at = member(scan.value_after(end), (*path, name[:LONGEST_SHOWN]))
            at = scan.skip(at)
        return members, at + 1

    def _array(self, at: int, path: Path, longest: int) -> tuple[list[Any], int]:
        elements: list[Any] = []
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
        if end - at > scanning.WINDOW:
            return self._object(at, path, self._field)
        return self._decode(self._view[at:end], at), end

    def _field(self, at: int, path: Path) -> Value:
        """A member of a document, or of a query with documents of its own."""
        if path[0] == "queries" and path[-1] == "documents" and self._scan.byte(at) == OPEN_LIST:
            return self._array(at, path, self._longest_array)
        return self._text(at, path) if path[-1] in _TEXTS else self._value(at, path, self._scan)

    def _text(self, at: int, path: Path) -> Value:
        """A value that should be a document's text."""
        if not self._scan.is_string(at):
            return self._value(at, path, self._scan)
        end = self._scan.end(at, path)
        self._check_length(at, end, path)
        return self._decode(self._view[at:end], at), end

    def _option(self, at: int, path: Path) -> Value:
        """A member of the whole object that is no text, document or query."""
        self._scan_option.step(path, 1)
        return self._value(at, path, self._scan_option)

    def _value(self, at: int, path: Path, scan: Scanner) -> Value:
        """Any other value."""
        end = scan.end(at, path)
        if end - at > _UNREAD_BYTES:
            raise RequestError(422, f"holds {(end - at) / 2**20:.1f} MiB; no option is that large", path)
        return self._decode(self._view[at:end], at), end

    def _check_length(self, start: int, end: int, path: Path) -> None:
        """Refuse a string that certainly has too many characters; a character takes at most 4 bytes, or 6 per escape."""
        if end - start <= self._longest_text:
            return
        window = scanning.WINDOW
        escapes = sum(self._body.count(b"\\", at, min(at + window, end)) for at in range(start, end, window))
        at_least = (end - start - 2 - 6 * escapes) // 4 + escapes // 2
        if at_least > self._longest_text:
            raise RequestError(422, f"has at least {at_least} characters, limit {self._longest_text}", path)
