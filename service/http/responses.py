"""Errors as responses."""

import orjson
from starlette.responses import Response

from service.errors import RequestError
from service.http.dialects import NATIVE, Dialect

JSON = "application/json"


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
