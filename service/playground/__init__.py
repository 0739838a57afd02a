"""The page at /: a query and documents in, the new order and the highlighted blocks out."""

from functools import cache
from importlib.resources import files

from service.assets import OWN_ALONE, TYPES, Asset

FOLDER = "/playground"
PAGE = "index.html"
POLICY = OWN_ALONE | {
    "require-trusted-types-for": "'script'",  # the browser refuses to make HTML of a string, a document's text above all
    "trusted-types": "'none'",
}


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page by its path, read once."""
    found = [file for file in files(__name__).iterdir() if file.name.rpartition(".")[2] in TYPES]
    return {"/" if file.name == PAGE else f"{FOLDER}/{file.name}": Asset.read(file, POLICY) for file in found}
