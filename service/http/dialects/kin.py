"""The smaller dialects: those of text-embeddings-inference, of Voyage, of vLLM's scores, and of NVIDIA's NIM."""

from typing import Any

from keyblock.ranking.answer import Answered
from keyblock.ranking.warnings import first_few
from keyblock.wire import (
    ErrorBody,
    NimOptions,
    PairScore,
    PassageLogit,
    ScoreOptions,
    TeiErrorBody,
    TeiOptions,
    TeiResult,
    VoyageOptions,
)
from service.call import Call
from service.errors import RequestError
from service.http.dialects import native
from service.http.dialects.common import (
    ERROR_TYPES,
    About,
    Payload,
    PiecesResponse,
    json_list,
    read_documents,
    read_options,
    read_query,
    unknown_fields,
)
from service.settings import Limits

PAIRS = (("queries", "documents"), ("text_1", "text_2"))  # the two members of a request for scores, in newer and older versions


def read_tei(payload: Payload, limits: Limits) -> Call:
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


def answer_tei(call: Call, answered: Answered, about: About) -> PiecesResponse:  # noqa: ARG001
    """A bare list of all texts, best first."""
    ranking = answered.ranking

    def result(index: int) -> TeiResult:
        one: TeiResult = {"index": index, "score": float(ranking.scores[index])}
        return {**one, "text": call.documents.texts[index]} if call.return_documents else one

    return PiecesResponse(json_list(map(result, ranking.order)))


def error_tei(problem: RequestError) -> TeiErrorBody:
    """The body of an error."""
    kind = ERROR_TYPES.get(problem.status, "Validation")
    return {"error": problem.message, "error_type": kind, "message": problem.message, "detail": problem.detail()}


def read_voyage(payload: Payload, limits: Limits) -> Call:
    """Read a native request, with `top_k` for `top_n`. Raises RequestError 422."""
    return native.read(payload, limits, VoyageOptions)


def answer_voyage(call: Call, answered: Answered, about: About) -> PiecesResponse:
    """The native answer, with `data` for `results`, and documents as plain texts."""

    def result(index: int) -> dict[str, Any]:
        one: dict[str, Any] = {**native.result_of(call, answered, index)}
        return one | {"document": one["document"]["text"]} if "document" in one else one

    return native.whole(call, answered, about, "data", map(result, answered.ranking.order), object="list")


def error_voyage(problem: RequestError) -> ErrorBody:
    """The body of an error: its client prints `detail`, a text."""
    return {**native.error(problem), "detail": problem.message}


def read_score(payload: Payload, limits: Limits) -> Call:
    """Read a request: a query and texts, or as many queries as texts. Raises RequestError 422."""
    warnings: list[str] = []
    queries, texts = next((names for names in PAIRS if any(payload.get(name) is not None for name in names)), PAIRS[-1])
    documents = read_documents(payload, texts, limits, warnings)
    options = read_options(ScoreOptions, payload, {queries, texts})
    if unknown := unknown_fields(options):
        warnings.append(f"unknown fields, not used: {first_few(unknown)}")
    query = read_query(_one_query(payload.get(queries), queries, texts, len(documents)), limits, warnings, (queries,))
    return Call(query, documents, model=options.model, raw_scores=options.use_activation is False, warnings=warnings)


def _one_query(given: Any, name: str, texts: str, n_texts: int) -> Any:
    """The query in a list that has it once, or once for each text. Raises RequestError 422."""
    if not isinstance(given, list) or not given:
        return given
    if len(given) not in (1, n_texts):
        raise RequestError(422, f"has {len(given)} elements, and {texts} has {n_texts}: send one, or one for each", (name,))
    for number, query in enumerate(given):
        if query != given[0]:
            problem = "differs from the first: a request scores texts for one query; send one for each"
            raise RequestError(422, problem, (name, number))
    return given[0]


def answer_score(call: Call, answered: Answered, about: About) -> PiecesResponse:
    """The scores in the order of the request."""
    scores = answered.ranking.scores
    data = (PairScore(index=index, object="score", score=float(scores[index])) for index in range(len(call.documents)))
    return native.whole(call, answered, about, "data", data, object="list", id=f"score-{about.request_id}")


def read_nim(payload: Payload, limits: Limits) -> Call:
    """Read a request: a query and passages, as objects with a text. Raises RequestError 422."""
    warnings: list[str] = []
    query: Any = payload.get("query")
    nested = isinstance(query, dict)
    query = read_query(query.get("text") if nested else query, limits, warnings, ("query", "text") if nested else ("query",))
    passages = read_documents(payload, "passages", limits, warnings)
    options = read_options(NimOptions, payload, {"query", "passages"})
    return Call(query, passages, model=options.model, raw_scores=True, warnings=warnings)


def answer_nim(call: Call, answered: Answered, about: About) -> PiecesResponse:
    """The logits of all passages, best first."""
    scores = answered.ranking.scores
    rankings = (PassageLogit(index=index, logit=float(scores[index])) for index in answered.ranking.order)
    return native.whole(call, answered, about, "rankings", rankings, id=f"ranking-{about.request_id}")
