"""The page at /docs: what the service can be asked. Swagger UI shows it, from the package fastapi-offline and not from a CDN."""

from functools import cache
from importlib.resources import files

from service.assets import OWN_ALONE, Asset

PATH = "/docs"
POLICY = OWN_ALONE | {"img-src": "'self' data:"}  # Swagger UI's arrows


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
