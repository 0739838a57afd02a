"""The application: routes, lifespan, error shapes, and the OpenAPI document."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from keyblock import __version__
from keyblock.wire import (
    LINES_EXAMPLE,
    Deletion,
    DocumentLine,
    ErrorBody,
    NimAnswer,
    QueriesAnswer,
    RerankAnswer,
    ScoreAnswer,
    StoredAnswer,
    StoredText,
    TeiErrorBody,
    TeiResult,
    VoyageAnswer,
)
from service import playground, reference
from service.errors import RequestError
from service.http.auth import NEEDED, Browsers, failed, requires
from service.http.dialects import error_response
from service.http.dialects.common import COST_HEADERS
from service.http.documents import delete_document, get_document, put_documents
from service.http.endpoint import rank_passages, rerank, score
from service.http.examples import ANSWERS, EXAMPLES, NIM_EXAMPLES, SCORE_EXAMPLES, Example
from service.http.info import HEALTH, RELOAD_PATH, add_health, add_info, add_operators
from service.keys.keys import Scope, describe, load_keys
from service.memory import keep_giving_back
from service.playground.reading import add_reading
from service.ranking.ranker import Ranker
from service.ranking.reload import Reloader
from service.settings import Settings
from service.telemetry.account import Accounting, Tracing

log = logging.getLogger(__name__)
RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
JOINED_PATHS = ("/v1/v1/rerank", "/v1/v2/rerank")  # from a base URL with /v1 and a client that adds the version itself
SCORE_PATHS = ("/score", "/v1/score")
NIM_PATH = "/v1/ranking"
HOSTED_NIM_PATH = "/v1/retrieval/{name:path}/reranking"  # of NVIDIA's own service, which some clients add to any address
OPERATIONS = (*HEALTH, "/info", "/v1/models", "/metrics")
EXPOSED = ["X-Request-ID", "Retry-After", "X-Degraded", "X-Skipped-Documents", "Server-Timing", *COST_HEADERS]
ABOUT = """Reranks documents, however long, by their key blocks. `POST /rerank` speaks the native shape, which Jina's, Cohere's,
vLLM's and Infinity's clients understand, Voyage's with `top_k`, and TEI's when `texts` takes the place of `documents`.
Several `queries` may share the documents. `POST /score` speaks vLLM's, `POST /v1/ranking` NIM's. `PUT /documents` stores
documents, which are then ranked by their id alone."""
REQUESTS = tuple(dict.fromkeys(example.model for example in (EXAMPLES | SCORE_EXAMPLES | NIM_EXAMPLES).values()))
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": RerankAnswer | VoyageAnswer | QueriesAnswer | list[TeiResult],
        "description": "best first",
        "content": {"application/json": {"examples": {name: {"value": answer} for name, answer in ANSWERS.items()}}},
    }
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody | TeiErrorBody, "description": meaning}
    for status, meaning in {
        400: "not JSON",
        **NEEDED,
        408: "the body took longer to arrive than the limit",
        413: "a larger body than the limit",
        415: "a content-encoding that is neither gzip nor zstd",
        422: "a field is missing, of a wrong type, or over a limit; the message names it",
        429: "no room for one more; Retry-After says when to try again",
        500: "the model failed on this request; others are served",
        503: "the model is warming up or not running, or the service ends; Retry-After says when to try again",
    }.items()
}
DOCUMENT_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": meaning}
    for status, meaning in {
        400: "not what the content-encoding says",
        **NEEDED,
        408: "the next 64 KiB of the body took longer to arrive than the limit",
        415: "a body compressed by something else than gzip or zstd",
        422: "there is no store, or the body has nothing that can be stored",
        429: "too much is in flight; `Retry-After` says when to try again",
        500: "the service failed on this request; others are served",
        503: "the store does not answer; `Retry-After` says when to try again",
        507: "the store is full; the message says what of this request is stored",
    }.items()
}
LONGEST_PATH = 100  # characters of an unknown path that a message repeats
_REF = "#/components/schemas/{model}"


class Service(FastAPI):
    """FastAPI, with the request models in its OpenAPI document: bodies are parsed by our own code, off the event loop."""

    def __init__(self, title: str = "KeyBlock", *, loopback: bool = False, **options: Any) -> None:
        self._loopback = loopback
        super().__init__(title=title, version=__version__, redirect_slashes=False, docs_url=None, redoc_url=None, **options)
        self.router.routes.extend(reference.routes())

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            models: list[type[BaseModel]] = [*REQUESTS, DocumentLine]
            _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
            document = super().openapi()
            document["components"]["schemas"] |= definitions["$defs"]
            if self.state.keyring is None:
                for operation in (operation for path in document["paths"].values() for operation in path.values()):
                    operation.pop("security", None)  # this service has no keys
        return super().openapi()

    def build_middleware_stack(self) -> ASGIApp:
        """Put our own middleware around FastAPI's."""
        settings: Settings = self.state.settings
        stack = Browsers(super().build_middleware_stack(), settings, loopback=self._loopback)
        return Accounting(stack, access_log=settings.access_log)


def request_body(examples: Mapping[str, Example]) -> dict[str, Any]:
    """The OpenAPI description of a body of which these are examples."""
    models = dict.fromkeys(example.model.__name__ for example in examples.values())
    schema = {"anyOf": [{"$ref": _REF.format(model=model)} for model in models]}
    shown = {name: {"summary": example.summary, "value": example.request} for name, example in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": shown}}}}


def lines_body() -> dict[str, Any]:
    """The OpenAPI description of the body of PUT /documents."""
    content = {"schema": {"$ref": _REF.format(model=DocumentLine.__name__)}, "example": LINES_EXAMPLE}
    return {"requestBody": {"required": True, "content": {"application/x-ndjson": content}}}


def answer_errors(app: FastAPI) -> None:
    """Give all errors one shape."""
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestError, failed)


def add_rerank(app: FastAPI) -> None:
    """Add the routes of reranking."""
    scored: dict[int | str, dict[str, Any]] = {200: {"model": ScoreAnswer, "description": "in the order of the documents"}}
    ranked: dict[int | str, dict[str, Any]] = {200: {"model": NimAnswer, "description": "best first"}}
    add = partial(app.add_api_route, methods=["POST"], dependencies=[requires(Scope.RANK)])
    for paths, handler, answers, examples in (
        (RERANK_PATHS, rerank, ANSWER, EXAMPLES),
        (SCORE_PATHS, score, scored, SCORE_EXAMPLES),
        ((NIM_PATH,), rank_passages, ranked, NIM_EXAMPLES),
    ):
        for path in paths:
            add(path, handler, tags=["rerank"], responses=answers | ERRORS, openapi_extra=request_body(examples))
    for path in (*JOINED_PATHS, *(f"{path}/" for path in RERANK_PATHS)):
        add(path, rerank, include_in_schema=False)
    add(HOSTED_NIM_PATH, rank_passages, include_in_schema=False)


def add_documents(app: FastAPI) -> None:
    """Add the routes of documents by id."""
    put: dict[int | str, dict[str, Any]] = {200: {"model": StoredAnswer, "description": "what is counted as stored is stored"}}
    get: dict[int | str, dict[str, Any]] = {
        200: {"model": StoredText, "description": "the document"},
        404: {"model": ErrorBody, "description": "an unknown id"},
    }
    delete: dict[int | str, dict[str, Any]] = {200: {"model": Deletion, "description": "it is not there any more"}}
    by_id = {"parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}
    routes = (
        ("/documents", "PUT", put_documents, put, lines_body()),
        ("/documents/{id:any}", "GET", get_document, get, by_id),
        ("/documents/{id:any}", "DELETE", delete_document, delete, by_id),
    )
    for path, method, handler, answers, extra in routes:
        responses = answers | DOCUMENT_ERRORS
        about: dict[str, Any] = {"tags": ["documents"], "responses": responses, "openapi_extra": extra}
        app.add_api_route(path, handler, methods=[method], dependencies=[requires(Scope.DOCUMENTS)], **about)


def allow_origins(app: FastAPI, origins: str) -> None:
    """Let pages of these origins send requests from a browser, with the rights of their key."""
    methods, allowed = ["GET", "POST", "PUT", "DELETE"], [origin.strip() for origin in origins.split(",")]
    app.add_middleware(CORSMiddleware, allow_origins=allowed, allow_methods=methods, allow_headers=["*"], expose_headers=EXPOSED)


async def http_error(request: Request, error: Exception) -> Response:
    """The answer for unknown paths and methods, in the shape of all errors."""
    if not isinstance(error, HTTPException):
        raise error
    target = f"{request.method} {request.url.path[:LONGEST_PATH]!r}"
    settings: Settings = request.app.state.settings
    here = "here: POST /rerank ranks, and GET /docs shows all paths"
    if settings.admin_port is not None and request.url.path in ("/metrics", RELOAD_PATH):
        here = f"at this port: it has moved to the admin port (KEYBLOCK_ADMIN_PORT={settings.admin_port})"
    problem = {
        404: f"there is no {target} {here}",
        405: f"{target} is not served: this path takes {_allowed(request)}",
    }.get(error.status_code, error.detail)
    response = error_response(RequestError(error.status_code, problem))
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["allow"] = _allowed(request)
    return response


def _allowed(request: Request) -> str:
    """The methods that are served at the path of a request, of all its routes."""
    routes = (
        route for route in request.app.routes if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    )
    return ", ".join(sorted({method for route in routes for method in route.methods or ()}))


def create_app(settings: Settings, ranker: Ranker, *, loopback: bool = False) -> FastAPI:
    """The application.

    Args:
        settings: see `Settings`.
        ranker: starts and ends with the application.
        loopback: whether only this machine can connect, so that a foreign name in the header Host is refused.

    Raises KeysError if the settings name API keys that cannot be read.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        ranker.start()
        log.info("%s", describe(app.state.keyring))
        app.state.reloader = Reloader(ranker, app.state)
        app.state.reloader.listen()
        giving_back = asyncio.create_task(keep_giving_back())
        try:
            yield
        finally:
            giving_back.cancel()
            await ranker.end()
            ranker.close()
            app.state.reloader.close()
            app.state.tracing.close()

    app = Service(description=ABOUT, lifespan=lifespan, loopback=loopback)
    app.state.settings, app.state.keyring, app.state.ranker = settings, load_keys(settings), ranker
    app.state.tracing = Tracing(settings.otlp_endpoint)
    answer_errors(app)
    add_rerank(app)
    add_documents(app)
    add_health(app)
    add_info(app)
    if settings.admin_port is None:
        add_operators(app)
    if settings.playground:
        app.router.routes.extend(playground.routes())
        add_reading(app)
    if settings.cors_origins:
        allow_origins(app, settings.cors_origins)
    return app


def create_admin_app(app: FastAPI, *, loopback: bool = False) -> FastAPI:
    """The application for operators at their own port; it shares all state with the application for clients."""
    admin = Service(title="KeyBlock, for operators", loopback=loopback)
    admin.state = app.state
    answer_errors(admin)
    add_health(admin)
    add_operators(admin)
    return admin
