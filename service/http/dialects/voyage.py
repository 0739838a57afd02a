"""Voyage's dialect: the native one, with `top_k` for `top_n`, `data` for `results`, and documents as plain texts."""

from typing import Any

from keyblock.ranking.answer import Answered
from keyblock.wire import ErrorBody, VoyageOptions
from service.call import Call
from service.errors import RequestError
from service.http.dialects import native
from service.http.dialects.common import About, Payload, PiecesResponse
from service.settings import Limits

NAME = "voyage"


def read(payload: Payload, limits: Limits) -> Call:
    """Read a request. Raises RequestError 422."""
    return native.read(payload, limits, VoyageOptions)


def answer(call: Call, answered: Answered, about: About) -> PiecesResponse:
    """The answer, best result first."""
    data = (_result(call, answered, index) for index in answered.ranking.order)
    return native.whole(call, answered, about, "data", data, object="list")


def error(problem: RequestError) -> ErrorBody:
    """The body of an error: its client prints `detail`, a text."""
    return {**native.error(problem), "detail": problem.message}


def _result(call: Call, answered: Answered, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {**native.result_of(call, answered, index)}
    if "document" in result:
        result["document"] = result["document"]["text"]
    return result
