"""The native dialect, a superset of Jina's, Cohere's, vLLM's and Infinity's."""

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any

from keyblock.fusion import FirstStage, FirstStageError
from keyblock.ranking.answer import Answered
from keyblock.ranking.order import ScoredBy
from keyblock.ranking.request import AnswerOptions
from keyblock.ranking.spans import THRESHOLD
from keyblock.ranking.warnings import first_few
from keyblock.wire import (
    NOT_HONOURED,
    BlockAnswer,
    ContextAnswer,
    ContextMeta,
    DocumentAnswer,
    ErrorBody,
    Meta,
    Options,
    PartAnswer,
    Result,
    SecondLookMeta,
    SpanAnswer,
)
from service.call import Call, Documents
from service.errors import RequestError
from service.http.dialects.common import (
    ERROR_TYPES,
    About,
    Payload,
    PiecesResponse,
    read_documents,
    read_options,
    read_query,
    unknown_fields,
    with_list,
)
from service.settings import Limits

LITELLM = "litellm/"  # the start of its User-Agent
LONGEST_PROBLEM = 400  # characters of a message that repeats what was sent
DOCUMENTS_PER_UNIT = 100  # Cohere bills a query with up to 100 documents as one search unit


def read(payload: Payload, limits: Limits, model: type[Options] = Options) -> Call:
    """Read a request, whose options `model` describes. Raises RequestError 422."""
    warnings: list[str] = []
    query = read_query(payload.get("query"), limits, warnings)
    options = read_options(model, payload, {"query", "documents"})
    documents = read_documents(payload, "documents", limits, warnings, options.rank_fields, by_id=True)
    return call_of(query, documents, options, warnings)


def call_of(query: str, documents: Documents, options: Options, warnings: list[str]) -> Call:
    """The call, whose warnings grow by those about its options. Raises RequestError 422."""
    if idle := [name for name in NOT_HONOURED if getattr(options, name) is not None]:
        warnings += [f"{name} is not honoured by this version" for name in idle]
    if unknown := unknown_fields(options):
        warnings.append(f"unknown fields, not used: {first_few(unknown)}")
    return Call(
        query=query,
        documents=documents,
        model=options.model,
        max_tokens=options.max_tokens_per_doc,
        return_documents=bool(options.return_documents),
        return_blocks=bool(options.return_blocks),
        raw_scores=bool(options.raw_scores),
        deadline=None if options.deadline_ms is None else options.deadline_ms / 1000,
        priority=options.priority or 0,
        strict=bool(options.strict),
        second_look=options.second_look is not False,
        instruction=options.instruction,
        asked=_answer_options(options),
        first_stage=_first_stage(options, len(documents)),
        warnings=warnings,
    )


def _answer_options(options: Options) -> AnswerOptions:
    """The requested parts of the answer beside the order."""
    span_options = options.relevant_spans
    asked = AnswerOptions(
        min_score=options.min_score,
        prune=bool(options.prune),
        tokens=options.max_context_tokens,
        top_n=options.top_n or 0,
        diversity=options.diversity or 0.0,
        read_all=bool(options.read_all),
    )
    if span_options is None:
        return asked
    threshold = THRESHOLD if span_options.threshold is None else span_options.threshold
    return asked._replace(spans=span_options.mode == "enabled", threshold=threshold, most=span_options.max_spans)


def _first_stage(options: Options, n_documents: int) -> FirstStage:
    """The first stage's scores and fusion. Raises RequestError 422."""
    try:
        return FirstStage.read(options.first_stage_scores, options.fusion, n_documents)
    except FirstStageError as error:
        raise RequestError(422, error.problem[:LONGEST_PROBLEM], (error.field,)) from None


def result_of(call: Call, answered: Answered, index: int) -> Result:
    """The place of a document."""
    ranking = answered.ranking
    result: Result = {"index": call.number(index), "relevance_score": float(ranking.scores[index])}
    if (fused := ranking.fused.get(index)) is not None:
        result["fused_score"] = fused
    if (identity := call.documents.ids[index]) is not None:
        result["id"] = identity
    if call.return_documents and not call.documents.by_id.absent(index):
        result["document"] = _document(call, index)
    if call.return_blocks:
        result["blocks"] = [BlockAnswer(start=b.start, end=b.end, score=b.score) for b in ranking.blocks[index]]
    if spans := answered.spans.get(index):
        result["relevant_spans"] = [SpanAnswer(start=s.start, end=s.end, score=s.score) for s in spans]
    if (context := answered.contexts.get(index)) is not None:
        parts = [PartAnswer(start=part.start, end=part.end) for part in context.parts]
        result["context"] = ContextAnswer(text=context.text, tokens=context.tokens, parts=parts)
    if (scorer := ranking.scored_by[index]) is not ScoredBy.MODEL:
        result["scored_by"] = scorer.value
    if (chosen := ranking.selected_by[index]) is not None:
        result["selected_by"] = chosen.value
    return result


def _document(call: Call, index: int) -> DocumentAnswer:
    document: DocumentAnswer = {"text": call.documents.texts[index]}
    if title := call.documents.titles[index]:
        document["title"] = title
    return document


def answer(call: Call, answered: Answered, about: About) -> PiecesResponse:
    """The answer, best result first."""
    return whole(call, answered, about, "results", (result_of(call, answered, index) for index in answered.ranking.order))


def whole(
    call: Call, answered: Answered, about: About, name: str, items: Iterable[Mapping[str, object]], **more: str
) -> PiecesResponse:
    """An answer whose list is called `name` and has these items; `more` replaces other members."""
    ranking = answered.ranking
    units = -(-len(call.documents) // DOCUMENTS_PER_UNIT)
    meta: Meta = {
        "degraded": ranking.degraded,
        "warnings": call.warnings,
        "timings_ms": about.timings_ms,
        "tokens_per_document": ranking.budget,
        "api_version": {"version": "2" if "/v2/" in about.path else "1"},
        "billed_units": {"search_units": units},
        "tokens": {"input_tokens": ranking.n_tokens, "output_tokens": 0},
    }
    if ranking.skipped:
        meta["skipped"] = ranking.skipped
    if ranking.looked_tokens:
        meta["second_look"] = SecondLookMeta(documents=ranking.looked, tokens=ranking.looked_tokens)
    if answered.refused is not None:
        meta["min_score"], meta["below_min_score"] = answered.refused.least, answered.refused.left_out
        if answered.refused.best is not None:
            meta["best_below_min_score"] = answered.refused.best
    if (saved := answered.saved) is not None:
        meta["context"] = ContextMeta(tokens=saved.tokens, tokens_of_documents=saved.tokens_of_documents, saved=saved.saved)
        if saved.copies:
            meta["context"]["copies"] = saved.copies
    frame: dict[str, object] = {
        "id": f"rerank-{about.request_id}",
        "object": "rerank",
        "created": int(time.time()),
        "model": about.model,
        name: [],
        "usage": {"prompt_tokens": ranking.n_tokens, "total_tokens": ranking.n_tokens},
        "meta": meta,
    }
    return PiecesResponse(with_list(frame | more, name, items))


def error(problem: RequestError) -> ErrorBody:
    """The body of an error."""
    body: dict[str, Any] = {"message": problem.message, "type": problem.kind, "code": problem.status}
    body["param"] = problem.path[0] if problem.path else None
    answer: ErrorBody = {"detail": problem.detail(), "message": problem.message, "error": body}
    if problem.retry_after or problem.status in (401, 403):  # the request was refused unread, so it may come from a TEI client
        answer["error_type"] = ERROR_TYPES[problem.status]
    return answer


def without_unreadable(call: Call, user_agent: str, path: str) -> Call:
    """The call without the fields that its sender cannot read.

    litellm requests documents unless its user says otherwise. It sends the same request for Infinity, where it reads `document` as
    a string, as for vLLM and Jina, where it reads an object; it works without documents for all of them. Only Cohere uses /v2.
    """
    if not call.return_documents or not user_agent.startswith(LITELLM) or "/v2/" in path:
        return call
    warning = "return_documents: litellm reads the documents of Infinity and of vLLM in contradicting shapes, so none are sent back"
    return dataclasses.replace(call, return_documents=False, warnings=[*call.warnings, warning])
