"""The page at /: takes a query and documents, shows the new order and the highlighted blocks."""

from functools import cache
from importlib.resources import files

from starlette.routing import Route

from service import assets

FOLDER = "/playground"
PAGE = "index.html"
POLICY = assets.OWN_FILES_ONLY | {
    "require-trusted-types-for": "'script'",  # the browser refuses to make HTML of a string, such as a document's text
    "trusted-types": "'none'",
}


@cache
def routes() -> list[Route]:
    """The routes of the page, read once."""
    found = [file for file in files(__name__).iterdir() if file.name.rpartition(".")[2] in assets.TYPES]
    return assets.routes({"/" if file.name == PAGE else f"{FOLDER}/{file.name}": file for file in found}, POLICY)
