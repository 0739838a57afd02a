"""The client's exceptions; their messages are the service's, if it sent one."""

import json
from collections.abc import Mapping
from typing import Any

LONGEST_SHOWN = 300  # characters shown of an answer in an unknown form


class KeyBlockError(Exception):
    """The base of all the client's exceptions.

    Attributes:
        request_id: the id that was sent, which the service logs.
        stored: for an interrupted put, how many of its documents earlier requests had stored.
    """

    stored: int = 0

    def __init__(self, message: str, request_id: str = "") -> None:
        super().__init__(message)
        self.request_id = request_id


class UnreachableError(KeyBlockError):
    """No answer: no service listens there, or the connection broke, in every attempt."""


class TimeUpError(KeyBlockError, TimeoutError):
    """No answer within the call's time."""


class AnswerError(KeyBlockError):
    """The answer is not KeyBlock's: the URL may be wrong."""


class StatusError(KeyBlockError):
    """The service answered with an error.

    Attributes:
        status: the HTTP status.
        message: the service's; it begins with the field's name if it is about a field.
        kind: the machine-readable type of the error, such as ``overloaded``.
        retry_after: seconds after which the service said to try again.
        details: problems of single fields or lines.
    """

    def __init__(
        self,
        status: int,
        message: str,
        request_id: str,
        kind: str = "",
        retry_after: float | None = None,
        details: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        super().__init__(f"{message} (status {status}, request {request_id})", request_id)
        self.status, self.message, self.kind, self.retry_after, self.details = status, message, kind, retry_after, details

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.status, self.message, self.request_id, self.kind, self.retry_after, self.details
        return type(self), given, self.__dict__  # else a pool of processes breaks where one of them raises it


class InvalidRequestError(StatusError):
    """The request is wrong (400, 413, 422 ...): the service refuses it every time."""


class AccessError(StatusError):
    """The API key is missing, unknown, or not allowed to do this (401, 403)."""


class NotFoundError(StatusError):
    """No such document, or no such path (404)."""


class UnavailableError(StatusError):
    """The service is busy, warming up, failing or full (429, 500 and above); the client retried if that could help."""


def read_error(status: int, content: bytes, request_id: str, retry_after: float | None) -> StatusError:
    """The exception for an error's body; if that is not the service's (a proxy's, say), its beginning is the message."""
    kind, details = "", tuple[Mapping[str, Any], ...]()
    try:
        body = json.loads(content)
        message, error, detail = str(body["message"]), body.get("error"), body.get("detail")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        beginning = " ".join(content[:LONGEST_SHOWN].decode(errors="replace").split())
        message = beginning or "an error without a message"
    else:
        kind = str(error.get("type", "")) if isinstance(error, dict) else str(body.get("error_type", ""))
        details = tuple(one for one in detail if isinstance(one, dict)) if isinstance(detail, list) else ()
    return _of_status(status)(status, message, request_id, kind, retry_after, details)


def _of_status(status: int) -> type[StatusError]:
    if status in (401, 403):
        return AccessError
    if status == 404:
        return NotFoundError
    return UnavailableError if status == 429 or status >= 500 else InvalidRequestError
