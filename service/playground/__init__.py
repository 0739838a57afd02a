"""The page at /: a query and documents in, the new order and the highlighted blocks out. Static files, served from memory."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = "/playground"
PAGE = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # the browser refuses to make HTML of a string, a document's text above all
        "trusted-types 'none'",
    )
)
HEADERS = {
    "cache-control": "no-cache",  # kept, and asked for again by its ETag: a new version is seen at once
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class Asset:
    """A file of the page."""

    content: bytes
    etag: str
    media_type: str

    def answer(self, asked: str) -> Response:
        """The file, or 304 where `asked`, the If-None-Match header, names this very version."""
        known = {tag.strip().removeprefix("W/") for tag in asked.split(",")}
        headers = HEADERS | {"etag": self.etag}
        if self.etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page by its name, read once."""
    found = {}
    for file in files(__name__).iterdir():
        media_type = TYPES.get(file.name.rpartition(".")[2])
        if media_type:
            content = file.read_bytes()
            found[file.name] = Asset(content, f'"{hashlib.sha256(content).hexdigest()[:32]}"', media_type)
    return found


def _sender(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        return asset.answer(request.headers.get("if-none-match", ""))

    return send


def routes() -> list[Route]:
    """The page at /, and the files it is made of beside it; HEAD is answered too."""
    paths = {f"{FOLDER}/{name}": asset for name, asset in assets().items() if name != PAGE} | {"/": assets()[PAGE]}
    return [Route(path, _sender(asset), methods=["GET"], include_in_schema=False) for path, asset in paths.items()]
