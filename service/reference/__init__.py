"""The page at /docs: the service's API, shown by Swagger UI from the package fastapi-offline, not from a CDN."""

from functools import cache
from importlib.resources import files

from service.assets import OWN_FILES_ONLY, Asset

PATH = "/docs"
POLICY = OWN_FILES_ONLY | {"img-src": "'self' data:"}  # Swagger UI's arrows


@cache
def assets() -> dict[str, Asset]:
    """The page and its files by their paths, read once."""
    ours, swagger = files(__name__), files("fastapi_offline") / "static"
    found = {
        PATH: ours / "index.html",
        f"{PATH}/start.js": ours / "start.js",
        f"{PATH}/icon.svg": files("service.playground") / "icon.svg",
        f"{PATH}/swagger-ui.css": swagger / "swagger-ui.css",
        f"{PATH}/swagger-ui-bundle.js": swagger / "swagger-ui-bundle.js",
    }
    return {path: Asset.read(file, POLICY) for path, file in found.items()}
