"""The dialect of text-embeddings-inference: the request has `texts`, the answer is a bare sorted list of all of them."""

from keyblock.ranking.answer import Answered
from keyblock.ranking.order import Ranking
from keyblock.wire import TeiErrorBody, TeiOptions, TeiResult
from service.call import Call
from service.errors import RequestError
from service.http.dialects.common import About, Payload, PiecesResponse, json_list, read_documents, read_options, read_query
from service.settings import Limits

NAME = "tei"
ERROR_TYPES = {401: "Unauthorized", 403: "Forbidden", 429: "Overloaded", 500: "Backend", 503: "Unhealthy"}


def read(payload: Payload, limits: Limits) -> Call:
    """Read a request; fields of other dialects (`top_n`) are ignored. Raises RequestError 422."""
    warnings: list[str] = []  # dropped: a bare list has no place for them
    query = read_query(payload.get("query"), limits, warnings)
    texts = read_documents(payload, "texts", limits, warnings)
    options = read_options(TeiOptions, payload, {"query", "texts"})
    return Call(
        query,
        texts,
        model=options.model,
        return_documents=bool(options.return_text),
        raw_scores=bool(options.raw_scores),
        warnings=warnings,
    )


def answer(call: Call, answered: Answered, about: About) -> PiecesResponse:  # noqa: ARG001
    """The answer, best result first."""
    return PiecesResponse(json_list(_result(call, answered.ranking, index) for index in answered.ranking.order))


def _result(call: Call, ranking: Ranking, index: int) -> TeiResult:
    result: TeiResult = {"index": index, "score": float(ranking.scores[index])}
    if call.return_documents:
        result["text"] = call.documents.texts[index]
    return result


def error(problem: RequestError) -> TeiErrorBody:
    """The body of an error."""
    kind = ERROR_TYPES.get(problem.status, "Validation")
    return {"error": problem.message, "error_type": kind, "message": problem.message, "detail": problem.detail()}
