"""Static files of the pages, served from memory, with headers for security and caching."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
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


def routes(files: Mapping[str, Traversable], policy: Mapping[str, str]) -> list[Route]:
    """A route for each file by its path, which also answers HEAD; the files are read now.

    Args:
        files: by their paths in a URL.
        policy: the Content-Security-Policy that is sent with them.
    """
    return [Route(path, _sender(file, policy), methods=["GET"], include_in_schema=False) for path, file in files.items()]


def _sender(file: Traversable, policy: Mapping[str, str]) -> Callable[[Request], Awaitable[Response]]:
    content, media_type = file.read_bytes(), TYPES[file.name.rpartition(".")[2]]
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    rules = "; ".join(f"{name} {value}" for name, value in policy.items())
    headers = HEADERS | {"content-security-policy": rules, "etag": etag}

    async def send(request: Request) -> Response:
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return send
