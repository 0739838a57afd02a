"""Finds the ends of JSON values in short steps, so that no step holds the interpreter lock for long.

Values are not decoded here, and their contents may be invalid JSON: decoding them finds that.
"""

import re

from service.errors import Path, RequestError

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


def not_json(problem: str, at: int) -> RequestError:
    """The error for a text that is not JSON at the byte `at`."""
    return RequestError(400, f"the body is not JSON: {problem} (byte {at})")
