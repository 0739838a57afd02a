"""Reads a stream of JSON lines: unpacks it, cuts it into lines, and reads and checks them, in batches of bounded size."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from keyblock.ranking.warnings import LONGEST_SHOWN
from keyblock.wire import LONGEST_ID, MOST_EXPIRES_IN, DocumentLine
from service.errors import RequestError
from service.http.bodies.parsing import Unpacking, described, parse_line
from service.http.dialects.common import read_text
from service.settings import Limits

BATCH_DOCUMENTS = 512
BATCH_CHARS = 2_000_000
MOST_USELESS = 100_000  # lines without a document; a stream with more is something else, or compressed to keep the service busy
MOST_USELESS_BYTES = 256 << 20  # of all such lines together; lines that are too long to be read do not count
STEP = 1 << 20  # unpacked bytes after which a reader pauses, so that other requests have their turn
MOST_UNPACKED = 250  # average unpacked bytes per received byte, beyond `max_body_bytes`; text seldom reaches a tenth of it
MOST_ERRORS = 20  # that an answer lists
_BOM = b"\xef\xbb\xbf"


class NewDocument(NamedTuple):
    """A document to be stored.

    Attributes:
        line: number of its line, from 1 on.
        expires_in: seconds; None for the service's default.
    """

    line: int
    id: str
    text: str
    title: str
    expires_in: float | None


class Wrong(NamedTuple):
    """A line that cannot be stored: its number, its id if it has one, and the reason."""

    line: int
    id: str | int | None
    message: str


@dataclass
class Report:
    """The problems found in a stream.

    Attributes:
        failed: number of lines that could not be stored.
        wrong: the first of them.
        unread: names of fields that are not used.
    """

    failed: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    unread: dict[str, None] = field(default_factory=dict)

    def add(self, line: int, identity: object, message: str) -> None:
        """Add a line that cannot be stored."""
        self.failed += 1
        if len(self.wrong) < MOST_ERRORS:
            shown = identity[:LONGEST_ID] if isinstance(identity, str) else identity
            self.wrong.append(Wrong(line, shown if isinstance(shown, str | int) else None, message))


class LineReader:
    """Reads one stream.

    Args:
        encoding: content-encoding of the stream.
        limits: of a document; `max_body_bytes` limits a line.
        report: gets the wrong lines.
    """

    def __init__(self, encoding: str, limits: Limits, report: Report) -> None:
        self._unpacking = Unpacking(encoding)
        self._limits = limits
        self._report = report
        self._part = bytearray()  # of a line whose end has not arrived yet
        self._skipping = False  # whether the current line is too long
        self._line = self._useless = self._useless_bytes = 0
        self._received = self._unpacked = 0
        self._batch: list[NewDocument] = []
        self._chars = 0

    @property
    def held(self) -> int:
        """Approximate number of bytes in hand."""
        return len(self._part) + self._chars

    def feed(self, piece: bytes) -> Iterator[list[NewDocument]]:
        """Read the next bytes of the body. Yields full batches, and an empty one after each STEP bytes.

        Raises RequestError: 400 if they do not fit the encoding, 413 if they unpack to far more than text does, 422 if too many
        lines hold no document.
        """
        self._received += len(piece)
        step = 0
        for unpacked in self._unpacking.feed(piece):
            self._unpacked += len(unpacked)
            if self._unpacked > self._limits.max_body_bytes + MOST_UNPACKED * self._received:
                raise RequestError(413, f"the body unpacks to more than {MOST_UNPACKED} times its size: send it uncompressed")
            start = 0
            while (end := unpacked.find(b"\n", start)) >= 0:
                self._add(unpacked[start:end])
                self._end_line()
                start = end + 1
                if len(self._batch) >= BATCH_DOCUMENTS or self._chars >= BATCH_CHARS:
                    yield self._take_batch()
            self._add(unpacked[start:])
            if (step := step + len(unpacked)) >= STEP:
                step = 0
                yield []

    def end(self) -> list[NewDocument]:
        """Finish the body. Returns the last batch, which may be empty. Raises RequestError 400 if the body ends too early."""
        self._unpacking.end()
        if self._part or self._skipping:
            self._end_line()
        return self._take_batch()

    def _take_batch(self) -> list[NewDocument]:
        batch, self._batch, self._chars = self._batch, [], 0
        return batch

    def _add(self, part: bytes) -> None:
        if not self._skipping:
            self._part += part
            if len(self._part) > self._limits.max_body_bytes:
                self._skipping = True
                self._part.clear()

    def _end_line(self) -> None:
        self._line += 1
        line, self._part = self._part, bytearray()
        if self._line == 1 and line.startswith(_BOM):
            del line[: len(_BOM)]
        failed = self._report.failed
        if self._skipping:
            self._skipping = False
            self._report.add(self._line, None, f"is longer than the limit of {self._limits.max_body_bytes} bytes")
        elif line.strip():
            self._read(line)
        if not line.strip() or self._report.failed > failed:
            self._count_useless(len(line))

    def _count_useless(self, n_bytes: int) -> None:
        """Count a line without a document. Raises RequestError 422 if there are too many."""
        self._useless += 1
        self._useless_bytes += n_bytes
        if self._useless > MOST_USELESS or self._useless_bytes > MOST_USELESS_BYTES:
            limit = f"{MOST_USELESS} lines" if self._useless > MOST_USELESS else f"{MOST_USELESS_BYTES} bytes of lines"
            raise RequestError(422, f"more than {limit} up to line {self._line} are wrong or blank: are these JSON lines?")

    def _read(self, line: bytearray) -> None:
        value: Any = None
        try:
            value = parse_line(line, self._limits)
            given = read_line(value, self._line, self._limits)
        except RequestError as error:
            identity = value.get("id") if isinstance(value, dict) else None
            self._report.add(self._line, identity, error.message.replace("the body is not", "not", 1))
            return
        unread = value.keys() - DocumentLine.model_fields.keys()
        if len(self._report.unread) < MOST_ERRORS:
            self._report.unread |= dict.fromkeys(name[:LONGEST_SHOWN] for name in unread)
        self._batch.append(given)
        self._chars += len(given.text) + len(given.title)


def read_line(value: Any, line: int, limits: Limits) -> NewDocument:
    """The document of a line, checked by hand as candidates are. Raises RequestError 422."""
    if not isinstance(value, dict):
        raise RequestError(422, f"must be an object with 'id' and 'text', one a line, not {described(value)}")
    identity, title, expires_in = value.get("id"), value.get("title"), value.get("expires_in")
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise RequestError(422, f"must be a string or an integer, not {described(identity)}", ("id",))
    if not 1 <= len(str(identity)) <= LONGEST_ID:
        raise RequestError(422, f"must have 1 to {LONGEST_ID} characters, and it has {len(str(identity))}", ("id",))
    text = read_text(value.get("text"), ("text",), limits)
    title = "" if title is None else read_text(title, ("title",), limits)
    if expires_in is not None:
        _check_expiry(expires_in)
    return NewDocument(line, str(identity), text, title, expires_in)


def _check_expiry(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise RequestError(422, f"must be a number of seconds, not {described(seconds)}", ("expires_in",))
    if not 0 < seconds <= MOST_EXPIRES_IN:
        raise RequestError(422, f"must be more than 0 and at most {MOST_EXPIRES_IN} seconds", ("expires_in",))
