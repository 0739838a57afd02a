"""The dialects of clients: each reads a payload into a Call and writes a Ranking, or an error, back."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from starlette.responses import Response

from keyblock.ranking.answer import Answered
from service.call import Call
from service.errors import RequestError
from service.http.dialects import kin, native
from service.http.dialects.common import About, PiecesResponse
from service.settings import Limits

JSON = "application/json"


class Dialect(NamedTuple):
    """A dialect.

    Attributes:
        name: in the metrics.
        read: reads a request, and raises RequestError.
        answer: writes the answer.
        error: the body of an error.
    """

    name: str
    read: Callable[[dict[str, Any], Limits], Call]
    answer: Callable[[Call, Answered, About], PiecesResponse]
    error: Callable[[RequestError], Mapping[str, Any]]


NATIVE = Dialect("native", native.read, native.answer, native.error)
TEI = Dialect("tei", kin.read_tei, kin.answer_tei, kin.error_tei)
VOYAGE = Dialect("voyage", kin.read_voyage, kin.answer_voyage, kin.error_voyage)
SCORE = Dialect("score", kin.read_score, kin.answer_score, native.error)
NIM = Dialect("nim", kin.read_nim, kin.answer_nim, native.error)
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
