"""Reads the service's answers: results become objects, errors become exceptions."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from keyblock.client import results
from keyblock.client.errors import AnswerError, KeyBlockError, read_error
from keyblock.client.results import read_ranking
from keyblock.client.retries import read_retry_after
from keyblock.client.steps import Answer
from keyblock.results import Ranking

REQUEST_ID = "x-request-id"

T = TypeVar("T")


def status_error(answer: Answer, request_id: str) -> KeyBlockError:
    """The exception for an answer that is not a success."""
    request_id = answer.headers.get(REQUEST_ID) or request_id
    if answer.status < 400:
        where = answer.headers.get("location")
        error = AnswerError(f"answers {answer.status}" + (f" and points to {where}: give the client that URL" if where else ""))
        error.request_id = request_id
        return error
    retry_after = read_retry_after(answer.headers.get("retry-after"))
    return read_error(answer.status, answer.content, request_id, retry_after).error()


def ranking_in(answer: Answer, documents: list[Mapping[str, Any]], request_id: str) -> Ranking:
    """The ranking that an answer holds. Raises AnswerError."""
    request_id = answer.headers.get(REQUEST_ID) or request_id
    try:
        return read_ranking(read(results.RERANK_ANSWER, answer, request_id), documents, request_id)
    except IndexError:
        error = AnswerError(f"the answer names a document that was not sent: there were {len(documents)}")
        error.request_id = request_id
        raise error from None


def read(shape: TypeAdapter[T], answer: Answer, request_id: str) -> T:
    """The answer's body. Raises AnswerError if it has another shape."""
    try:
        return shape.validate_json(answer.content)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        error = AnswerError(f"not KeyBlock's answer ({where}: {first['msg']}); it begins {answer.content[:80]!r}")
        error.request_id = answer.headers.get(REQUEST_ID) or request_id
        raise error from None
