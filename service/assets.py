"""Static files of the pages, served from memory, with headers for security and caching."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
OWN_FILES_ONLY = {  # a Content-Security-Policy: no content from elsewhere, and no frames
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "cache-control": "no-cache",  # browsers check the ETag at each use, so a new version is seen at once
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class Asset:
    """A file of a page.

    Attributes:
        headers: sent with the file.
    """

    content: bytes
    media_type: str
    headers: Mapping[str, str]

    @classmethod
    def read(cls, file: Traversable, policy: Mapping[str, str]) -> "Asset":
        """Read a file, to be sent with this Content-Security-Policy."""
        content = file.read_bytes()
        tag = {"etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}
        rules = {"content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items())}
        return cls(content, TYPES[file.name.rpartition(".")[2]], HEADERS | rules | tag)

    def answer(self, known: str) -> Response:
        """The file, or 304 if `known`, the If-None-Match header, names this version."""
        tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
        if self.headers["etag"] in tags or "*" in tags:
            return Response(status_code=304, headers=dict(self.headers))
        return Response(self.content, headers=dict(self.headers), media_type=self.media_type)


def routes(assets: Mapping[str, Asset]) -> list[Route]:
    """A route for each path; it also answers HEAD."""
    return [Route(path, _sender(asset), methods=["GET"], include_in_schema=False) for path, asset in assets.items()]


def _sender(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        return asset.answer(request.headers.get("if-none-match", ""))

    return send
