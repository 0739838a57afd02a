"""Uploads any number of documents to the store: in requests that can each be sent again, with one report of all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from keyblock import wire
from keyblock.client.bodies import as_document, as_json
from keyblock.client.errors import KeyBlockError, StatusError
from keyblock.client.results import StoreReport, WrongDocument

BATCH_BYTES = 4 << 20  # the most bytes of a request; a larger document is sent alone
SHOWN = 20  # wrong documents that a report names, as many as the service names for one request

Line = Mapping[str, Any] | wire.DocumentLine | wire.Document


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents of one request, as JSON lines.

    Attributes:
        first: the place of its first document among all documents of the put.
    """

    content: bytes
    first: int
    count: int


def nothing_stored(error: KeyBlockError) -> wire.StoredAnswer | None:
    """The answer about a batch that was refused because every line of it is wrong; None for any other error."""
    if not isinstance(error, StatusError) or error.kind != wire.NOTHING_STORED:
        return None
    wrong = [wire.WrongLine(line=int(one["loc"][-1]), message=str(one["msg"])) for one in error.details]
    return wire.StoredAnswer(stored=0, failed=0, errors=wrong, warnings=[])


class Upload:
    """One put: collects documents and returns a batch for each full request.

    Args:
        documents: what is to be put. Raises TypeError for a single one, whose fields or letters would be taken for documents.

    Attributes:
        report: the report on all batches entered so far.
    """

    def __init__(self, documents: object = ()) -> None:
        if isinstance(documents, str | bytes | Mapping | wire.DocumentLine | wire.Document):
            raise TypeError(f"documents must be several, in a list or another iterable, not one {type(documents).__name__}")
        self.report = StoreReport()
        self._lines: list[bytes] = []
        self._bytes = 0
        self._count = 0

    def add(self, document: Line) -> Batch | None:
        """Add a document; return the batch before it if that is full. Raises TypeError and ValueError for a wrong document."""
        number = self._count
        line = as_json(dict(as_document(document, f"documents[{number}]"))) + b"\n"
        full = self.rest() if self._lines and self._bytes + len(line) > BATCH_BYTES else None
        self._lines.append(line)
        self._bytes += len(line)
        self._count += 1
        return full

    def rest(self) -> Batch | None:
        """All collected documents as a batch; None if there are none."""
        if not self._lines:
            return None
        batch = Batch(b"".join(self._lines), self._count - len(self._lines), len(self._lines))
        self._lines.clear()
        self._bytes = 0
        return batch

    def enter(self, batch: Batch, answer: wire.StoredAnswer) -> StoreReport:
        """Add the service's answer about a batch, in which lines count from 1, to the report."""
        before = self.report
        wrong = (WrongDocument(batch.first + one["line"] - 1, one["message"], one.get("id")) for one in answer["errors"])
        self.report = replace(
            before,
            stored=before.stored + answer["stored"],
            failed=before.failed + batch.count - answer["stored"],
            errors=(*before.errors, *wrong)[:SHOWN],
            warnings=tuple(dict.fromkeys((*before.warnings, *answer["warnings"]))),
        )
        return self.report
