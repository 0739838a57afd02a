"""What a web page makes its visitor's browser send to a service without keys: refused unless the page is the service's own.

CORS only keeps an answer from a page of another origin; what its request does is done. And a page whose name resolves to this
machine (DNS rebinding) is of the same origin for a browser.
"""

import re
from contextlib import suppress
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.guard import DeniedError, denied, keyring_of
from service.http.info import ranker_of
from service.settings import Settings

READING = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
OWN_SITES = ("same-origin", "none")  # values of Sec-Fetch-Site; none: the user's own doing
LONGEST_SHOWN = 100  # characters of a header in a message
FOREIGN_PAGE = (
    "a page of {origin!r} may not send this to a service without API keys: name the origin in KEYBLOCK_CORS_ORIGINS, "
    "or set KEYBLOCK_CROSS_SITE_WRITES=true"
)
FOREIGN_HOST = "the Host {host!r} is no name of this machine: send the request to localhost, or name it in KEYBLOCK_ALLOWED_HOSTS"
_PORT = re.compile(r":\d*$")


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app
        if scope["type"] == "http" and keyring_of(request := Request(scope, receive, send)) is None:
            why, message = self._problem(request.method, request.headers)
            if why:
                ranker_of(request).metrics.add("denied", why=why)
                app = await denied(request, DeniedError(403, message))
        await app(scope, receive, send)

    def _problem(self, method: str, headers: Headers) -> tuple[str, str]:
        """The label and the message of what is wrong; both empty for nothing."""
        foreign = [host for host in headers.getlist("host") if not self._is_own(host)]
        if foreign and not self._any_host:
            return "host", FOREIGN_HOST.format(host=foreign[0][:LONGEST_SHOWN])
        origin = headers.get("origin", "null")
        if method in READING or self._any_site or origin in self._origins or not _is_foreign(headers):
            return "", ""
        return "origin", FOREIGN_PAGE.format(origin=origin[:LONGEST_SHOWN])

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
