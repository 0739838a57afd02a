"""The dialects of clients: each reads a payload into a Call and writes a Ranking, or an error, back.

There is a module for each dialect.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from starlette.responses import Response

from keyblock.ranking.answer import Answered
from service.call import Call
from service.errors import RequestError
from service.http.dialects import native, nim, score, tei, voyage
from service.http.dialects.common import About, PiecesResponse
from service.settings import Limits

JSON = "application/json"


class Dialect(Protocol):
    """The members of a dialect's module."""

    NAME: str

    def read(self, payload: dict[str, Any], limits: Limits) -> Call:
        """Read a request. Raises RequestError."""

    def answer(self, call: Call, answered: Answered, about: About) -> PiecesResponse:
        """The answer."""

    def error(self, problem: RequestError) -> Mapping[str, Any]:
        """The body of an error."""


NATIVE: Dialect = native
TEI: Dialect = tei
VOYAGE: Dialect = voyage
SCORE: Dialect = score
NIM: Dialect = nim
DIALECTS = (NATIVE, TEI, VOYAGE, SCORE, NIM)


def error_response(problem: RequestError, dialect: Dialect = NATIVE, *, close: bool = False) -> Response:
    """The error in the caller's dialect.

    Args:
        problem: the error.
        dialect: of the caller.
        close: end the connection: it cannot be used again after a body that was not read to its end.
    """
    headers = {"connection": "close"} if close or problem.status in (408, 413) else {}
    if problem.retry_after:
        headers["retry-after"] = str(problem.retry_after)
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(orjson.dumps(dialect.error(problem)), problem.status, headers, JSON)
