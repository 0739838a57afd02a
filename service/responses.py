"""Errors as responses."""

import orjson
from starlette.responses import Response

from service.dialects import NATIVE, Dialect
from service.errors import RequestError

JSON = "application/json"


def error_response(problem: RequestError, dialect: Dialect = NATIVE) -> Response:
    """The error in the dialect of the caller.

    After a body that was not read to its end, the connection cannot be used again.
    """
    headers = {"connection": "close"} if problem.status in (408, 413) else {}
    if problem.retry_after:
        headers["retry-after"] = str(problem.retry_after)
    return Response(orjson.dumps(dialect.error(problem)), problem.status, headers, JSON)
