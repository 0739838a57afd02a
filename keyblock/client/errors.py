"""The client's exceptions; their messages are the service's, if it sent one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_SHOWN = 300  # characters shown of an answer in an unknown form


class KeyBlockError(Exception):
    """The base of all the client's exceptions.

    Attributes:
        request_id: the id that was sent, which the service logs.
        stored: for an interrupted put, how many of its documents earlier requests had stored.
    """

    request_id: str = ""
    stored: int = 0


class UnreachableError(KeyBlockError):
    """No answer: no service listens there, or the connection broke, in every attempt."""


class TimeUpError(KeyBlockError, TimeoutError):
    """No answer within the call's time."""


class AnswerError(KeyBlockError):
    """The answer is not KeyBlock's: the URL may be wrong."""


class StatusError(KeyBlockError):
    """The service answered with an error.

    Attributes:
        answer: the contents of the answer.
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
        """The service's message; it begins with the field's name if it is about a field."""
        return self.answer.message

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the service said to try again."""
        return self.answer.retry_after


class InvalidRequestError(StatusError):
    """The request is wrong (400, 413, 422 ...): the service refuses it every time."""


class AccessError(StatusError):
    """The API key is missing, unknown, or not allowed to do this (401, 403)."""


class NotFoundError(StatusError):
    """No such document, or no such path (404)."""


class UnavailableError(StatusError):
    """The service is busy, warming up, failing or full (429, 500 and above); the client retried if that could help."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The contents of an error's answer.

    Attributes:
        kind: the machine-readable type of the error, such as ``overloaded``.
        details: problems of single fields or lines.
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
    """Read an error's body; if it is not the service's (a proxy's, say), its beginning is the message."""
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
