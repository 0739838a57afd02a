"""Who may send a request: callers with a key, which is checked before the body is read, and without keys any but foreign web pages.

A web page makes its visitor's browser send requests to a service without keys: they are refused unless the page is the service's
own. CORS only keeps an answer from a page of another origin; what its request does is done. And a page whose name resolves to
this machine (DNS rebinding) is of the same origin for a browser.
"""

import re
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from fastapi import Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from keyblock.wire import ErrorBody
from service.errors import RequestError
from service.http.bodies.parsing import discard
from service.http.dialects import error_response
from service.keys.keys import DeniedError, Keyring, Scope, check_scope
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.telemetry.account import account_of

SCHEME = "ApiKey"
NEEDED: dict[int, str] = {
    401: "no API key, or none that is known here; where keys are configured",
    403: "the API key has not the scope for this; without keys: a page of another origin sent it, or its Host is a foreign name",
}
DENIALS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody, "description": text} for status, text in NEEDED.items()}
_ABOUT = "An API key. Needed where the service is configured with keys; each has scopes: " + ", ".join(Scope) + "."
READING = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
OWN_SITES = ("same-origin", "none")  # values of Sec-Fetch-Site; none: the user's own doing
LONGEST_SHOWN = 100  # characters of a header in a message
FOREIGN_PAGE = (
    "a page of {origin!r} may not send this to a service without API keys: name the origin in KEYBLOCK_CORS_ORIGINS, "
    "or set KEYBLOCK_CROSS_SITE_WRITES=true"
)
FOREIGN_HOST = "the Host {host!r} is no name of this machine: send the request to localhost, or name it in KEYBLOCK_ALLOWED_HOSTS"
_PORT = re.compile(r":\d*$")


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
        account = account_of(request)
        try:
            key = keyring.admit(request.headers.get("authorization"))
            account.key, account.namespace = key.name, key.owns
            check_scope(key, self._scope)
        except DeniedError as error:
            _count_denied(request, error)
            raise


def _count_denied(request: Request, error: DeniedError) -> None:
    """Count a denied request, and let the access log say why."""
    account_of(request).denied = error.why
    ranker_of(request).metrics.add("denied", why=error.why)


def requires(scope: Scope | None) -> Any:
    """For `dependencies=[...]` of a route: if there are keys, its caller needs one with this scope; None: any key."""
    return Security(Guard(scope), scopes=[] if scope is None else [scope.value])


def ranker_of(request: Request) -> Ranker:
    """The ranker that the application serves."""
    ranker: Ranker = request.app.state.ranker
    return ranker


def keyring_of(request: Request) -> Keyring | None:
    """The keys of the application; None if it needs no keys."""
    keyring: Keyring | None = request.app.state.keyring
    return keyring


async def failed(request: Request, error: Exception) -> Response:
    """The answer if a handler or a dependency raises a RequestError; of a denied request the body is thrown away unread."""
    if not isinstance(error, RequestError):
        raise error
    complete = not isinstance(error, DeniedError) or await discard(request, ranker_of(request).settings)
    return error_response(error, close=not complete)


class Browsers:
    """ASGI middleware that refuses what pages may not send, with 403. With keys it refuses nothing: a page would need a key.

    Args:
        app: answers the requests.
        settings: names of hosts and origins.
        loopback: whether only this machine can connect.
    """

    def __init__(self, app: ASGIApp, settings: Settings, *, loopback: bool) -> None:
        self._app = app
        self._origins = frozenset(settings.cors_origins.replace(" ", "").split(",")) - {""}
        self._any_site = settings.cross_site_writes or "*" in self._origins
        names = settings.allowed_hosts.lower().replace(" ", "").split(",")
        self._any_host = not loopback or "*" in names
        self._hosts = {"localhost", settings.host.lower(), settings.admin_host.lower(), *names}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app
        if scope["type"] == "http" and (problem := self._problem(request := Request(scope, receive, send))):
            _count_denied(request, problem)
            app = await failed(request, problem)
        await app(scope, receive, send)

    def _problem(self, request: Request) -> DeniedError | None:
        """What is wrong with a request; None for nothing."""
        if keyring_of(request) is not None:
            return None
        headers = request.headers
        foreign = [host for host in headers.getlist("host") if not self._is_own(host)]
        if foreign and not self._any_host:
            return DeniedError(403, FOREIGN_HOST.format(host=foreign[0][:LONGEST_SHOWN]), "host")
        origin = headers.get("origin", "null")
        if request.method in READING or self._any_site or origin in self._origins or not _is_foreign(headers):
            return None
        return DeniedError(403, FOREIGN_PAGE.format(origin=origin[:LONGEST_SHOWN]), "origin")

    def _is_own(self, host: str) -> bool:
        """Whether a Host is a name of this machine. Nobody else can own an address, or a name under localhost."""
        name = _PORT.sub("", host.lower()).removesuffix(".")
        if name in self._hosts or name.endswith(".localhost"):
            return True
        with suppress(ValueError):
            ip_address(name.strip("[]"))
            return True
        return False


def _is_foreign(headers: Headers) -> bool:
    """Whether a page of another origin sends the request. Clients that are no browsers send neither header."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in OWN_SITES
    origin = headers.get("origin")
    return origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower()
