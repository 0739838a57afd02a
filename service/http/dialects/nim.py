"""The dialect of NVIDIA's NIM: a query and passages as objects with a text; the answer ranks all of them by logit."""

from typing import Any

from keyblock.ranking.answer import Answered
from keyblock.wire import NimOptions, PassageLogit
from service.call import Call
from service.http.dialects import native
from service.http.dialects.common import About, Payload, PiecesResponse, read_documents, read_options, read_query
from service.settings import Limits

NAME = "nim"
error = native.error


def read(payload: Payload, limits: Limits) -> Call:
    """Read a request. Raises RequestError 422."""
    warnings: list[str] = []
    query: Any = payload.get("query")
    nested = isinstance(query, dict)
    query = read_query(query.get("text") if nested else query, limits, warnings, ("query", "text") if nested else ("query",))
    passages = read_documents(payload, "passages", limits, warnings)
    options = read_options(NimOptions, payload, {"query", "passages"})
    return Call(query, passages, model=options.model, raw_scores=True, warnings=warnings)


def answer(call: Call, answered: Answered, about: About) -> PiecesResponse:
    """The answer, best passage first."""
    scores = answered.ranking.scores
    rankings = (PassageLogit(index=index, logit=float(scores[index])) for index in answered.ranking.order)
    return native.whole(call, answered, about, "rankings", rankings, id=f"ranking-{about.request_id}")
