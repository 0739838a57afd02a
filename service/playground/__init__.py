"""The page at /: takes a query and documents, shows the new order and the highlighted blocks."""

from functools import cache
from importlib.resources import files

from service.assets import OWN_FILES_ONLY, TYPES, Asset

FOLDER = "/playground"
PAGE = "index.html"
POLICY = OWN_FILES_ONLY | {
    "require-trusted-types-for": "'script'",  # the browser refuses to make HTML of a string, such as a document's text
    "trusted-types": "'none'",
}


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page by its path, read once."""
    found = [file for file in files(__name__).iterdir() if file.name.rpartition(".")[2] in TYPES]
    return {"/" if file.name == PAGE else f"{FOLDER}/{file.name}": Asset.read(file, POLICY) for file in found}
