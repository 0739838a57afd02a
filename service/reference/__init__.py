"""The page at /docs: the service's API, shown by Swagger UI from the package fastapi-offline, not from a CDN."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.routing import Route

from service import assets

PATH = "/docs"
POLICY = assets.OWN_FILES_ONLY | {"img-src": "'self' data:"}  # Swagger UI's arrows


def files() -> dict[str, Traversable]:
    """The page and its files by their paths."""
    ours, swagger = resources.files(__name__), resources.files("fastapi_offline") / "static"
    return {
        PATH: ours / "index.html",
        f"{PATH}/start.js": ours / "start.js",
        f"{PATH}/icon.svg": resources.files("service.playground") / "icon.svg",
        f"{PATH}/swagger-ui.css": swagger / "swagger-ui.css",
        f"{PATH}/swagger-ui-bundle.js": swagger / "swagger-ui-bundle.js",
    }


@cache
def routes() -> list[Route]:
    """The routes of the page, read once."""
    return assets.routes(files(), POLICY)
