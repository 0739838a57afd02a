"""POST /rerank and its kin: turns a request into an answer in the same dialect.

At the paths of /rerank the payload tells the dialect; others have their own paths.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from keyblock.ranking.answer import Answered
from service.call import Call, Queries
from service.errors import RequestError, problem_of
from service.http.auth import ranker_of
from service.http.bodies.parsing import (
    PIECEWISE_FROM,
    check_head,
    declared_bytes,
    discard,
    encoding_of,
    expects_continue,
    parse,
    read_body,
    too_large,
    unpack,
)
from service.http.dialects import NATIVE, NIM, SCORE, TEI, VOYAGE, Dialect, error_response, native, queries
from service.http.dialects.common import About, PiecesResponse, cost_headers
from service.queue.job import ModelDeadError, ModelError
from service.ranking.admission import Place
from service.ranking.model import Model, Outcome
from service.ranking.preparation import LARGE_CHARS, count_bytes
from service.ranking.ranker import dead_error
from service.telemetry.account import Stages, account_of, tracing_of

GONE = 499  # the client has gone, so nobody reads this status
PACKED_LARGE = 256 * 2**10  # bytes of a compressed body that seldom unpacks to less than PIECEWISE_FROM


T = TypeVar("T")
Write = Callable[[Call, Answered, About], PiecesResponse]
"""Writes an answer."""
Failure = Exception | asyncio.CancelledError


async def rerank(request: Request) -> Response:
    """Rank documents for a query: best first, with the blocks that decided it."""
    return await Exchange(request).respond()


async def score(request: Request) -> Response:
    """Score documents for a query, as vLLM does: in the order given."""
    return await Exchange(request, SCORE).respond()


async def rank_passages(request: Request) -> Response:
    """Rank passages for a query, as NVIDIA's NIM does: best first, by logit."""
    return await Exchange(request, NIM).respond()


class Exchange:
    """One request, with everything that is known of it so far.

    Args:
        request: the request.
        dialect: of its path; None: the body tells it.
    """

    def __init__(self, request: Request, dialect: Dialect | None = None) -> None:
        self._ranker = ranker_of(request)
        self._request = request
        self._trace = tracing_of(request).begin(request)
        self._stages = Stages(self._ranker.metrics, self._trace.id)
        self._of_path = dialect
        self._dialect: Dialect = dialect or NATIVE
        self._account = account_of(request)

    async def respond(self) -> Response:
        """The answer or the error, whatever happens; also counts it."""
        response, outcome = await ending(self._admitted(), self._refused)
        self._ranker.metrics.add("requests", dialect=self._dialect.name, outcome=outcome)
        self._account.dialect, self._account.stages = self._dialect.name, self._stages
        response.headers["server-timing"] = self._stages.server_timing()
        self._trace.end(response.status_code, self._stages, dialect=self._dialect.name, outcome=outcome)
        return response

    async def _admitted(self) -> Response:
        """The answer, if there is room for the request; else its body is thrown away."""
        await check_head(self._request, self._ranker.settings)
        try:
            place = self._account.held.enter_context(self._ranker.enter(declared_bytes(self._request)))
        except RequestError:
            await discard(self._request, self._ranker.settings)
            raise
        body = await read_body(self._request, self._ranker.settings, place.set_bytes)
        place.begin()  # it is in flight from now on
        self._stages = Stages(self._ranker.metrics, self._trace.id)
        response = await unless_gone(self._request, self._answer(body, place))
        self._stages.metrics.observe("latency", self._stages.total, self._trace.id, dialect=self._dialect.name)
        return response

    async def _answer(self, body: bytearray, place: Place) -> Response:
        unpacked = await self._unpacked(body)
        n_bytes = len(unpacked)
        place.set_bytes(n_bytes)
        large = n_bytes >= PIECEWISE_FROM
        asked = await self._ranker.off_loop(lambda: self._read(unpacked), large=large)
        place.set_bytes(max(n_bytes, asked.documents.n_bytes))
        if isinstance(asked, Queries):
            response = await self._answer_each(asked, place, large=large)
        else:
            model = self._model(asked)
            scoring = model.score(asked, self._stages, place)
            response = await self._answered(asked, model, scoring, self._stages, self._dialect.answer, large=large)
        place.set_answer(response.n_bytes)
        return response

    def _model(self, *calls: Call) -> Model:
        """The model for calls that name the same; they are read. Raises RequestError 422."""
        for call in calls:  # each is warned
            model = self._ranker.models.chosen(call, strict=self._ranker.settings.strict_models)
        self._stages.metrics = model.metrics
        self._stages.end("parse")
        return model

    async def _answer_each(self, asked: Queries, place: Place, *, large: bool) -> PiecesResponse:
        """The answers to several queries. Raises RequestError for what concerns all of them."""
        if not asked.asked:
            self._stages.metrics = self._ranker.models.default.metrics  # no query says which
            errors = enumerate(one for one in asked.calls if isinstance(one, RequestError))
            return queries.together([self._failed_query(*error) for error in errors])
        model = self._model(*asked.asked)
        admitted = await model.prepare(asked, self._stages, place)

        async def answer(number: int) -> PiecesResponse:
            try:
                if isinstance(call := asked.calls[number], RequestError):
                    raise call
                stages = self._stages.branch()
                scoring = model.score_one(call, admitted, stages)
                answered = await self._answered(call, model, scoring, stages, native.answer, large=large)
            except Exception as error:
                return self._failed_query(number, error)
            self._ranker.metrics.add("queries", outcome="ok")
            return answered

        response = queries.together(await asyncio.gather(*map(answer, range(len(asked.calls)))))
        self._stages.note("queries")
        tokens, degraded = int(response.headers["x-compute-tokens"]), "x-degraded" in response.headers
        self._trace.annotate(queries=len(asked.calls), documents=asked.pairs, tokens=tokens, degraded=degraded)
        return response

    def _failed_query(self, number: int, error: Exception) -> PiecesResponse:
        """The error of one of several queries; it is counted."""
        problem = self._problem(error).inside("queries", number)
        self._ranker.metrics.add("queries", outcome=problem.outcome)
        return queries.error(problem)

    async def _answered(
        self, call: Call, model: Model, scoring: Awaitable[Outcome], stages: Stages, write: Write, *, large: bool
    ) -> PiecesResponse:
        """The answer to a call; it is counted."""
        outcome = await scoring
        repeats = call.return_documents or call.asked.reads_texts
        large |= repeats and sum(map(len, call.documents.texts)) > LARGE_CHARS  # the body may only have ids
        answered = await model.answer_in_turns(call, outcome) if call.asked.in_turns else None

        def written() -> PiecesResponse:
            return self._write(call, answered or model.answer(call, outcome), model, stages, write)

        response = await self._ranker.off_loop(written, large=large)
        stages.end("respond")
        model.count_answer(call, stages.total, degraded="x-degraded" in response.headers)
        return response

    async def _unpacked(self, body: bytearray) -> bytearray:
        """The body as JSON. A body that unpacks to little is unpacked in the threads of small requests. Raises RequestError."""
        encoding = encoding_of(self._request)
        if encoding == "identity":
            return body
        limit, unpacked = self._ranker.settings.max_body_bytes, None
        if len(body) < PACKED_LARGE:
            unpacked = await self._ranker.off_loop(lambda: unpack(body, encoding, min(PIECEWISE_FROM, limit)), large=False)
        if unpacked is None:
            unpacked = await self._ranker.off_loop(lambda: unpack(body, encoding, limit), large=True)
        if unpacked is None:
            raise too_large(self._ranker.settings, "unpacks to more")
        return unpacked

    def _read(self, body: bytearray) -> Call | Queries:
        settings, headers = self._ranker.settings, self._request.headers
        payload, sent = parse(body, settings), len(body)
        body.clear()  # the texts are copies; do not keep a large body while a slow model works
        self._dialect = self._of_path or dialect_of(payload)
        read_all = headers.get("x-read-all", "").lower() in ("true", "1")
        asked: Call | Queries
        if self._dialect is NATIVE and payload.get("queries") is not None:
            asked = queries.read(payload | {"read_all": True} if read_all else payload, settings)
            calls = asked.asked
        else:
            asked = self._dialect.read(payload, settings)
            if read_all:
                asked = replace(asked, asked=asked.asked._replace(read_all=True))
            if self._dialect is NATIVE:
                asked = native.without_unreadable(asked, headers.get("user-agent", ""), self._request.url.path)
            calls = [asked]
        count_bytes(asked.documents, sent)
        for documents in (asked.documents, *(call.documents for call in calls)):
            documents.by_id.namespace = self._account.namespace
        self._account.documents = sum(len(call.documents) for call in calls)
        if settings.log_texts and calls:
            self._account.call = calls[0]
        return asked

    def _write(self, call: Call, answered: Answered, model: Model, stages: Stages, write: Write) -> PiecesResponse:
        ranking = answered.ranking
        stages.end("aggregate")
        about = About(model.name, self._request.url.path, stages.milliseconds(), self._account.request_id)
        self._trace.annotate(documents=len(call.documents), tokens=ranking.n_tokens, degraded=ranking.degraded, model=about.model)
        response = write(call, answered, about)
        response.headers.update(cost_headers(call, ranking, about.timings_ms))
        return response

    def _refused(self, error: Failure) -> tuple[Response, str]:
        problem = self._problem(error)
        return error_response(problem, self._dialect, close=expects_continue(self._request)), problem.outcome

    def _problem(self, error: Failure) -> RequestError:
        if isinstance(error, ModelDeadError):
            return dead_error()
        if isinstance(error, ModelError):
            return RequestError(500, str(error))
        problem = problem_of(error)
        if problem.path[:1] == ("texts",) and self._of_path is None:  # refused before the whole body was read
            self._dialect = TEI
        return problem


def dialect_of(payload: Mapping[str, Any]) -> Dialect:
    """The dialect of a payload for /rerank.

    TEI if it has `texts`, and `documents` is missing, null or empty; Voyage's if it has `top_k` or `truncation`; otherwise, and
    with several queries, native.
    """
    if payload.get("queries") is not None:
        return NATIVE
    if payload.get("texts") is not None and payload.get("documents") in (None, []):
        return TEI
    return NATIVE if all(payload.get(name) is None for name in ("top_k", "truncation")) else VOYAGE


def refused(error: Failure) -> tuple[Response, str]:
    """The answer to a request that failed, and its outcome."""
    problem = problem_of(error)
    return error_response(problem), problem.outcome


async def ending(work: Awaitable[Response], refuse: Callable[[Failure], tuple[Response, str]] = refused) -> tuple[Response, str]:
    """The answer or the error, whatever happens, and the outcome by which metrics and traces count it."""
    try:
        return await work, "ok"
    except ClientDisconnect:
        return Response(status_code=GONE), "cancelled"
    except (Exception, asyncio.CancelledError) as error:
        return refuse(error)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`, which is cancelled when the client goes. Raises ClientDisconnect then."""
    tasks = asyncio.create_task(work), asyncio.create_task(disconnected(request))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def disconnected(request: Request) -> None:
    """Return when the client has gone; the request's body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
