"""What a caller may have to deal with, as exceptions: what was wrong, in the service's words where it has said so."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_SHOWN = 300  # characters of an answer that nobody understands


class KeyBlockError(Exception):
    """Everything that the client raises of its own.

    Attributes:
        request_id: as it was sent, and as the service logs it.
        stored: of a put that was cut short: how many of its documents had been stored by earlier requests.
    """

    request_id: str = ""
    stored: int = 0


class UnreachableError(KeyBlockError):
    """No answer: nobody listens there, or the connection broke, as often as it was tried."""


class TimeUpError(KeyBlockError, TimeoutError):
    """No answer within the time that the call had."""


class AnswerError(KeyBlockError):
    """Something else than KeyBlock answers there: the URL may be wrong."""


class StatusError(KeyBlockError):
    """The service answered with an error.

    Attributes:
        answer: what the answer said.
    """

    def __init__(self, answer: "ErrorAnswer") -> None:
        super().__init__(f"{answer.message} (status {answer.status}, request {answer.request_id})")
        self.answer = answer
        self.request_id = answer.request_id

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.answer.status

    @property
    def message(self) -> str:
        """The service's own words; they begin with the field's name where it is about one."""
        return self.answer.message

    @property
    def retry_after(self) -> float | None:
        """Seconds after which it said to try again."""
        return self.answer.retry_after


class InvalidRequestError(StatusError):
    """The request is at fault (400, 413, 422 ...): sent again as it is, it is refused again."""


class AccessError(StatusError):
    """The API key is missing, unknown, or not allowed to do this (401, 403)."""


class NotFoundError(StatusError):
    """No such document, or no such path (404)."""


class UnavailableError(StatusError):
    """Busy, warming up, failing or full (429, 500 and above); it was tried again where that could help."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """What an error's answer says.

    Attributes:
        kind: the service's word for programs, such as ``overloaded``.
        details: what is wrong with single fields or lines.
    """

    status: int
    message: str
    request_id: str
    kind: str = ""
    retry_after: float | None = None
    details: tuple[Mapping[str, Any], ...] = ()

    def error(self) -> StatusError:
        """The exception to raise."""
        if self.status in (401, 403):
            return AccessError(self)
        if self.status == 404:
            return NotFoundError(self)
        return UnavailableError(self) if self.status == 429 or self.status >= 500 else InvalidRequestError(self)


def read_error(status: int, content: bytes, request_id: str, retry_after: float | None) -> ErrorAnswer:
    """Read an error's body; of one that is not the service's (a proxy's, say) the beginning is the message."""
    try:
        body = json.loads(content)
        message, error, detail = str(body["message"]), body.get("error"), body.get("detail")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ErrorAnswer(status, _beginning(content) or "an error without a message", request_id, retry_after=retry_after)
    kind = str(error.get("type", "")) if isinstance(error, dict) else str(body.get("error_type", ""))
    details = tuple(one for one in detail if isinstance(one, dict)) if isinstance(detail, list) else ()
    return ErrorAnswer(status, message, request_id, kind, retry_after, details)


def _beginning(content: bytes) -> str:
    return " ".join(content[:LONGEST_SHOWN].decode(errors="replace").split())
