"""Health and metadata of the open inference protocol (KServe's, version 2), for platforms that treat all model servers alike.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol. Its inference uses tensors; KeyBlock ranks
documents at POST /rerank instead.
"""

from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from keyblock import __version__
from keyblock.ranking.warnings import LONGEST_SHOWN
from service.errors import RequestError
from service.http.auth import DENIALS, ranker_of, requires
from service.http.dialects import JSON
from service.ranking.model import Model

SERVER = "/v2"
MODEL = "/v2/models/{name:path}"
MODEL_READY = f"{MODEL}/ready"
_UNREADY: dict[int | str, dict[str, Any]] = {503: {"description": "not ready"}}
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"description": "no model of this name"}}


async def live(request: Request) -> Response:
    """200 when GET /health/live gives 200."""
    alive = ranker_of(request).health.alive
    return _answer({"live": alive}, good=alive)


async def ready(request: Request) -> Response:
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


def add_inference(app: FastAPI) -> None:
    """Add the protocol's paths: its health is open to everybody; whatever names a model needs a key, as /info does."""
    about: dict[str, Any] = {"methods": ["GET"], "tags": ["operations"]}
    named = {"parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]}
    about["dependencies"] = [requires(None)]
    app.add_api_route(MODEL_READY, model_ready, responses=DENIALS | _UNREADY | _UNKNOWN, openapi_extra=named, **about)
    app.add_api_route(SERVER, server, responses=DENIALS, **about)
    app.add_api_route(MODEL, model_metadata, responses=DENIALS | _UNKNOWN, openapi_extra=named, **about)


def _model(request: Request) -> Model:
    name: str = request.path_params["name"]
    if (model := ranker_of(request).models.get(name)) is None:
        raise RequestError(404, f"{name[:LONGEST_SHOWN]!r} is not served here: GET /info names what is")
    return model


def _answer(content: dict[str, Any], *, good: bool = True) -> Response:
    return Response(orjson.dumps(content), 200 if good else 503, media_type=JSON)
