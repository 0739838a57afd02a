"""Errors of requests: a status, a message for people, and the faulty field."""

import logging
from asyncio import CancelledError
from dataclasses import dataclass, field
from typing import Any, Self

log = logging.getLogger(__name__)
Path = tuple[str | int, ...]

KINDS = {
    400: "invalid_json",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_encoding",
    422: "invalid_request",
    429: "overloaded",
    431: "too_large",
    500: "internal",
    503: "unavailable",
    507: "store_full",
}


def dotted(path: Path) -> str:
    """A path into the body as people write it.

    >>> dotted(("documents", 3, "text"))
    'documents[3].text'
    """
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


@dataclass
class RequestError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: the HTTP status.
        problem: the fault, the value, and what to do.
        path: place in the body; empty if the error is not about a field.
        kind: a word for programs; by default that of the status.
        retry_after: seconds after which to try again; 0 for nothing to say.
    """

    status: int
    problem: str
    path: Path = ()
    kind: str = field(default="")
    retry_after: int = 0

    def __post_init__(self) -> None:
        self.kind = self.kind or KINDS.get(self.status, "error")
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The problem, after the field's name."""
        return f"{dotted(self.path)}: {self.problem}" if self.path else self.problem

    def inside(self, *path: str | int) -> Self:
        """The same error, of a part of the body that is at this path."""
        return type(self)(self.status, self.problem, (*path, *self.path), self.kind, self.retry_after)

    @property
    def outcome(self) -> str:
        """How metrics and traces count the request: refused if it may be sent again as it is, else invalid or failed."""
        if self.retry_after or self.status == 507:
            return "refused"
        return "invalid" if self.status < 500 else "failed"

    def detail(self) -> str | list[dict[str, Any]]:
        """FastAPI's `detail`: a list of objects for 422 (clients iterate over it), otherwise the message."""
        if self.status != 422:
            return self.message
        return [{"type": self.kind, "loc": ["body", *self.path], "msg": self.problem}]


def problem_of(error: Exception | CancelledError) -> RequestError:
    """The error for the client; a fault of the service is logged.

    A request is cancelled when the service stops and `shutdown_seconds` have passed.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, CancelledError):
        problem = "the service is ending and could not finish this in time: try again, or ask another replica"
        return RequestError(503, problem, retry_after=1)
    log.error("a request failed", exc_info=error)
    return RequestError(500, "the service failed on this request; its log says why")
