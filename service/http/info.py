"""What operators and platforms ask: health, metadata, metrics, a reload.

Some speak the open inference protocol (KServe's, version 2), which treats all model servers alike:
https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol. Its inference uses tensors; KeyBlock ranks
documents at POST /rerank instead.
"""

import time
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from keyblock import __version__
from keyblock.ranking.warnings import LONGEST_SHOWN
from keyblock.wire import ErrorBody, ReloadAnswer
from service.errors import RequestError
from service.http.auth import DENIALS, ranker_of, requires
from service.http.dialects import JSON, error_response
from service.keys.keys import Scope
from service.ranking.model import Model
from service.ranking.ranker import Health, Ranker
from service.ranking.reload import Reloader, ReloadError
from service.settings import Limits, Settings

CHARS_PER_TOKEN = 4  # in a client that cuts texts to max_input_length tokens, and so hardly ever cuts one
STARTED = int(time.time())  # seconds since 1970
RELOAD_PATH = "/admin/reload"
MODEL = "/v2/models/{name:path}"
NOT_RELOADED = "not_reloaded"
Responses = dict[int | str, dict[str, Any]]
RELOAD_ANSWERS: Responses = {
    200: {"model": ReloadAnswer, "description": "these models are served now"},
    **DENIALS,
    409: {"model": ErrorBody, "description": "a bundle or a key cannot be served; the message says why, and what has changed"},
}
UNHEALTHY: Responses = {503: {"description": "not in a state to serve; `status` says why"}}
UNREADY: Responses = {503: {"description": "not ready"}}
UNKNOWN: Responses = {404: {"description": "no model of this name"}}


def describe(ranker: Ranker, settings: Settings) -> dict[str, Any]:
    """The default model, all models, and the limits; first in the fields that clients of text-embeddings-inference look for."""
    return {
        "version": __version__,
        "model_id": ranker.models.default.name,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_input_length": settings.max_document_chars // CHARS_PER_TOKEN,
        "max_client_batch_size": settings.max_documents,
        "max_concurrent_requests": settings.max_requests_in_flight,
        **describe_model(ranker.models.default, settings),
        "models": [describe_model(model, settings) for model in ranker.models],
        "threads": settings.n_threads,
        "limits": {name: getattr(settings, name) for name in Limits.model_fields},
    }


def describe_model(model: Model, settings: Settings) -> dict[str, Any]:
    """One model: its bundle and pipeline, its device and arithmetic with the reasons, and its measured quality."""
    manifest = model.bundle.manifest
    low, high = manifest.pipeline.packing.budget_range
    return {
        "model": model.name,
        "format_version": manifest.format_version,
        **model.scorer.describe(settings),
        "selector": manifest.pipeline.selector,
        "encoder": _encoder(model),
        "aggregator": manifest.pipeline.aggregator,
        "pipeline": manifest.pipeline.model_dump(mode="json"),
        "tokens_per_document": {"default": manifest.pipeline.packing.budget, "least": low, "most": high},
        "answers": _answers(model),
        "preparation": model.fingerprint.hex(),
        "quality": manifest.quality,
        "provenance": manifest.provenance,
    }


def _answers(model: Model) -> dict[str, Any]:
    """How its scores compare across queries: whether it marks spans, its threshold, and the measurements of both."""
    manifest = model.bundle.manifest
    measured = manifest.quality.get("calibration", {})
    return {
        "marks_spans": model.scorer.marks and manifest.pipeline.spans is not None,
        "min_score": manifest.pipeline.min_score,
        **{name: measured.get(name) for name in ("threshold", "answers", "reliability", "spans")},
    }


def _encoder(model: Model) -> dict[str, Any] | None:
    """The encoder of the vectors that the selector compares; None if it compares none."""
    encoder = model.bundle.pipeline.encoder
    if encoder is None:
        return None
    return {**(model.bundle.manifest.pipeline.encoder or {}), "dimensions": encoder.dimensions}


async def info(request: Request) -> Response:
    """The served models and the limits of the service."""
    ranker = ranker_of(request)
    store = None if ranker.library is None else await ranker.library.about()
    return _answer(describe(ranker, request.app.state.settings) | {"store": store})


async def models(request: Request) -> Response:
    """The served models as OpenAI lists them, the default one first."""
    ranker = ranker_of(request)
    listed = [{"id": model.name, "object": "model", "created": STARTED, "owned_by": "keyblock"} for model in ranker.models]
    return _answer({"object": "list", "data": listed})


async def live(request: Request) -> Response:
    """200 while the model's thread lives and makes progress; 503 when it is dead or hangs: restart this replica."""
    health = ranker_of(request).health
    return _answer({"status": "live" if health.alive else _trouble(health)}, good=health.alive)


async def ready(request: Request) -> Response:
    """200 once the model is warmed up and while its thread lives; otherwise 503: send requests elsewhere."""
    health = ranker_of(request).health
    status = "ready" if health.ready else "warming up" if health.alive else _trouble(health)
    return _answer({"status": status}, good=health.ready)


async def protocol_live(request: Request) -> Response:
    """200 when GET /health/live gives 200."""
    alive = ranker_of(request).health.alive
    return _answer({"live": alive}, good=alive)


async def protocol_ready(request: Request) -> Response:
    """200 when GET /health/ready gives 200: every model is warmed up."""
    is_ready = ranker_of(request).health.ready
    return _answer({"ready": is_ready}, good=is_ready)


async def model_ready(request: Request) -> Response:
    """200 once this model accepts requests. Raises RequestError 404."""
    model, is_ready = _model(request), ranker_of(request).health.ready
    return _answer({"name": model.name, "ready": is_ready}, good=is_ready)


async def server(_: Request) -> Response:
    """The server: its name and version."""
    return _answer({"name": "keyblock", "version": __version__, "extensions": []})


async def model_metadata(request: Request) -> Response:
    """A model. It has no tensors as inputs or outputs, so none are described. Raises RequestError 404."""
    return _answer({"name": _model(request).name, "platform": "keyblock", "inputs": [], "outputs": []})


async def metrics(request: Request) -> Response:
    """Prometheus metrics, or OpenMetrics if the scraper accepts it."""
    ranker = ranker_of(request)
    await ranker.measure()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(ranker.metrics.registry), headers={"content-type": content_type})


async def reload(request: Request) -> Response:
    """Read bundles and API keys again and serve them, without losing a request. If one cannot be served, nothing changes."""
    reloader: Reloader = request.app.state.reloader
    try:
        reloaded = await reloader.reload()
    except ReloadError as error:
        return error_response(RequestError(409, f"not reloaded, nothing has changed: {error}", kind=NOT_RELOADED))
    answer: ReloadAnswer = {
        "models": reloaded.models,
        "loaded": reloaded.loaded,
        "removed": reloaded.removed,
        "keys": reloaded.keys,
        "seconds": round(reloaded.seconds, 3),
    }
    return _answer(answer)


HEALTH = {
    "/health": ready,
    "/health/live": live,
    "/health/ready": ready,
    "/v2/health/live": protocol_live,
    "/v2/health/ready": protocol_ready,
}


def add_health(app: FastAPI) -> None:
    """Add the routes for supervisors and load balancers, which need no key."""
    for path, handler in HEALTH.items():
        name = handler.__name__.removeprefix("protocol_")
        app.add_api_route(path, handler, methods=["GET"], name=name, tags=["operations"], responses=UNHEALTHY)
        app.add_api_route(path, handler, methods=["HEAD"], include_in_schema=False)  # some balancers and monitors use HEAD


def add_info(app: FastAPI) -> None:
    """Add the routes of the served models; whatever names one needs a key."""
    about: dict[str, Any] = {"methods": ["GET"], "tags": ["operations"], "dependencies": [requires(None)]}
    named = {"parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]}
    app.add_api_route(f"{MODEL}/ready", model_ready, responses=DENIALS | UNREADY | UNKNOWN, openapi_extra=named, **about)
    app.add_api_route("/v2", server, responses=DENIALS, **about)
    app.add_api_route(MODEL, model_metadata, responses=DENIALS | UNKNOWN, openapi_extra=named, **about)
    app.add_api_route("/info", info, responses=DENIALS, **about)
    app.add_api_route("/v1/models", models, responses=DENIALS, **about)


def add_operators(app: FastAPI) -> None:
    """Add the routes for operators, which move to the admin port if there is one. Prometheus can send a key as a bearer token."""
    about: dict[str, Any] = {"tags": ["operations"], "response_class": PlainTextResponse, "responses": DENIALS}
    app.add_api_route("/metrics", metrics, methods=["GET"], dependencies=[requires(Scope.METRICS)], **about)
    about = {"tags": ["operations"], "responses": RELOAD_ANSWERS}
    app.add_api_route(RELOAD_PATH, reload, methods=["POST"], dependencies=[requires(Scope.ADMIN)], **about)


def _trouble(health: Health) -> str:
    return "the model's thread hangs" if health.hung else "the model's thread is dead"


def _model(request: Request) -> Model:
    name: str = request.path_params["name"]
    if (model := ranker_of(request).models.get(name)) is None:
        raise RequestError(404, f"{name[:LONGEST_SHOWN]!r} is not served here: GET /info names what is")
    return model


def _answer(content: Mapping[str, object], *, good: bool = True) -> Response:
    return Response(orjson.dumps(content), 200 if good else 503, media_type=JSON)
