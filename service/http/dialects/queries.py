"""Several queries in one native request: each is answered as a request of its own, with the options that all share."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import orjson

from keyblock.ranking.warnings import first_few
from keyblock.wire import QueriesOptions, QueryOptions
from service.call import Call, Documents, Queries
from service.errors import RequestError
from service.http.bodies.parsing import described
from service.http.dialects import native
from service.http.dialects.common import (
    COST_HEADERS,
    Payload,
    PiecesResponse,
    in_pieces,
    read_documents,
    read_options,
    read_query,
    unknown_fields,
)
from service.settings import Limits

OWN = ("documents", "document_ids", "candidates")  # what says which documents a query has


def read(payload: Payload, limits: Limits) -> Queries:
    """Read a request. A query that cannot be asked is an error among the calls.

    Raises RequestError 422 for what the queries share.
    """
    given = payload["queries"]
    if payload.get("query") is not None:
        raise RequestError(422, "stand beside query: send one of them", ("queries",))
    if not isinstance(given, list):
        raise RequestError(422, f"must be a list, not {described(given)}", ("queries",))
    if len(given) > limits.max_queries:
        raise RequestError(422, f"has {len(given)} elements, limit {limits.max_queries}", ("queries",))
    options = read_options(QueriesOptions, payload, {"queries", "query", "documents"})
    warnings: list[str] = []
    shared = _documents(payload, options.document_ids, options, limits, warnings)
    calls: list[Call | RequestError] = []
    for one in given:
        try:
            calls.append(_call(one, shared, options, limits, list(warnings)))
        except RequestError as error:
            calls.append(error)
    queries = Queries(calls)
    if queries.pairs > limits.max_documents_in_flight:
        problem = f"have {queries.pairs} documents together, limit {limits.max_documents_in_flight}: send fewer in a request"
        raise RequestError(422, problem, ("queries",))
    return queries


def _call(given: object, shared: Documents | None, options: QueriesOptions, limits: Limits, warnings: list[str]) -> Call:
    """A query's call. Raises RequestError 422."""
    if not isinstance(given, dict):
        raise RequestError(422, f"must be an object with 'query', not {described(given)}")
    query = read_query(given.get("query"), limits, warnings)
    own = read_options(QueryOptions, given, {"query", "documents"})
    if len(own.candidates or ()) > limits.max_documents:
        raise RequestError(422, f"has {len(own.candidates or ())} elements, limit {limits.max_documents}", ("candidates",))
    if unknown := unknown_fields(own):
        warnings.append(f"unknown fields of the query, not used: {first_few(unknown)}")
    named = [name for name in OWN if given.get(name) is not None]
    if len(named) > 1:
        raise RequestError(422, f"stand beside {named[1]}: send one of them", (named[0],))
    documents = _documents(given, own.document_ids, options, limits, warnings)
    if documents is None:
        if shared is None:
            raise RequestError(422, "are missing: send a list of texts, or one that all queries share", ("documents",))
        documents = _taken(shared, range(len(shared)) if own.candidates is None else own.candidates)
    if own.first_stage_scores is not None:
        options = options.model_copy(update={"first_stage_scores": own.first_stage_scores})
    return replace(native.call_of(query, documents, options, warnings), numbers=own.candidates)


def _documents(
    given: Payload, ids: list[str | int] | None, options: QueriesOptions, limits: Limits, warnings: list[str]
) -> Documents | None:
    """The documents, or those of the ids; None if there are neither. Raises RequestError 422."""
    if ids is None:
        read = given.get("documents") is not None
        return read_documents(given, "documents", limits, warnings, options.rank_fields, by_id=True) if read else None
    if given.get("documents") is not None:
        raise RequestError(422, "stand beside document_ids: send one of them", ("documents",))
    return read_documents({"document_ids": [{"id": one} for one in ids]}, "document_ids", limits, warnings, by_id=True)


def _taken(shared: Documents, numbers: Iterable[int]) -> Documents:
    """Those of the shared documents. Raises RequestError 422 for a number without a document."""
    taken = Documents([], [], [])
    for place, number in enumerate(numbers):
        if number >= len(shared):
            raise RequestError(422, f"is {described(number)}, and the queries share {len(shared)} documents", ("candidates", place))
        taken.take(shared, number)
    return taken


def error(problem: RequestError) -> PiecesResponse:
    """The error of one of the queries."""
    return PiecesResponse([orjson.dumps(native.error(problem))])


def together(answers: Sequence[PiecesResponse]) -> PiecesResponse:
    """The answers to all queries: their tokens and characters together, and the longest of their times, since they run at once."""
    parts = [part for one in answers for part in (b",", *one.pieces)][1:]
    whole = PiecesResponse(in_pieces([b'{"answers":[', *parts, b"]}"]))
    for name in COST_HEADERS:
        of_each = [int(one.headers.get(name, 0)) for one in answers]
        whole.headers[name] = str(max(of_each, default=0) if name.endswith("-Time") else sum(of_each))
    if any("x-degraded" in one.headers for one in answers):
        whole.headers["x-degraded"] = "true"
    if skipped := sum(int(one.headers.get("x-skipped-documents", 0)) for one in answers):
        whole.headers["x-skipped-documents"] = str(skipped)
    return whole
