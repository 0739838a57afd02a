"""Access to routes: a caller needs a key with a scope, which is checked before the body is read."""

from typing import Any

from fastapi import Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import Request
from starlette.responses import Response

from keyblock.wire import ErrorBody
from service.errors import RequestError
from service.http.bodies.parsing import discard
from service.http.info import ranker_of
from service.http.responses import error_response
from service.keys.keys import Keyring, Scope
from service.telemetry.account import account_of

SCHEME = "ApiKey"
NEEDED: dict[int, str] = {
    401: "no API key, or none that is known here; where keys are configured",
    403: "the API key has not the scope for this; without keys: a page of another origin sent it, or its Host is a foreign name",
}
DENIALS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody, "description": text} for status, text in NEEDED.items()}
_ABOUT = "An API key. Needed where the service is configured with keys; each has scopes: " + ", ".join(Scope) + "."


class DeniedError(RequestError):
    """The caller may not make this request."""


class Guard(SecurityBase):
    """A dependency of routes, with its description for OpenAPI.

    Args:
        scope: that a key needs; None: any key is enough.
    """

    def __init__(self, scope: Scope | None) -> None:
        self.model = HTTPBearer(description=_ABOUT)
        self.scheme_name = SCHEME
        self._scope = scope

    async def __call__(self, request: Request) -> None:
        """Enter the key into the request's account. Raises DeniedError."""
        keyring = keyring_of(request)
        if keyring is None:
            return
        try:
            account_of(request).key = keyring.admit(request.headers.get("authorization"), self._scope)
        except RequestError as error:
            ranker_of(request).metrics.add("denied", why="key" if error.status == 401 else "scope")
            raise DeniedError(error.status, error.problem) from None


def requires(scope: Scope | None) -> Any:
    """For `dependencies=[...]` of a route: if there are keys, its caller needs one with this scope; None: any key."""
    return Security(Guard(scope), scopes=[] if scope is None else [scope.value])


def keyring_of(request: Request) -> Keyring | None:
    """The keys of the application; None if it needs no keys."""
    keyring: Keyring | None = request.app.state.keyring
    return keyring


async def denied(request: Request, error: Exception) -> Response:
    """The answer to a caller without access; the body is thrown away unread."""
    if not isinstance(error, DeniedError):
        raise error
    complete = await discard(request, ranker_of(request).settings)
    return error_response(error, close=not complete)


async def failed(_: Request, error: Exception) -> Response:
    """The answer if a handler or a dependency raises a RequestError."""
    if not isinstance(error, RequestError):
        raise error
    return error_response(error)
