"""/admin: routes for the operator alone."""

from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from keyblock.wire import ErrorBody, ReloadAnswer
from service.errors import RequestError
from service.http.auth import DENIALS, requires
from service.http.dialects import JSON, error_response
from service.keys.keys import Scope
from service.ranking.reload import Reloader, ReloadError

RELOAD_PATH = "/admin/reload"
NOT_RELOADED = "not_reloaded"
RELOAD_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": ReloadAnswer, "description": "these models are served now"},
    **DENIALS,
    409: {"model": ErrorBody, "description": "a bundle or a key cannot be served; the message says why, and what has changed"},
}


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
    return Response(orjson.dumps(answer), media_type=JSON)


def add_admin(app: FastAPI) -> None:
    """Add the routes."""
    app.add_api_route(
        RELOAD_PATH, reload, methods=["POST"], tags=["operations"], dependencies=[requires(Scope.ADMIN)], responses=RELOAD_ANSWERS
    )
