"""Reads books in EPUB: their chapters in reading order, each a page of XHTML."""

import io
import posixpath
import zipfile
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from service.files.html import read_page
from service.files.kinds import Extracted, UnreadableError

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
PAGES = ("application/xhtml+xml", "text/html")


def read_epub(content: bytes) -> Extracted:
    """The chapters, separated by blank lines, and the book's title. Raises UnreadableError if it is encrypted."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        existing = frozenset(archive.namelist())
        package_name = next((one.get("full-path", "") for one in _elements(archive, CONTAINER, "rootfile")), "")
        names = list(_chapters(archive, package_name))
        locked = _elements(archive, ENCRYPTION, "CipherReference") if ENCRYPTION in existing else iter(())
        if not {unquote(one.get("URI", "")) for one in locked}.isdisjoint(names):  # fonts are often locked, which does no harm
            raise UnreadableError("it is encrypted: give a copy without copy protection")
        pages = [read_page(archive.read(name)) for name in names if name in existing]
        title = next((" ".join((one.text or "").split()) for one in _elements(archive, package_name, "title")), "")
    problem = next((page.problem for page in pages if page.problem), "")
    return Extracted("\n\n".join(page.text for page in pages if page.text), title, problem)


def _chapters(archive: zipfile.ZipFile, package_name: str) -> Iterator[str]:
    """The names of the pages, in reading order."""
    items = _elements(archive, package_name, "item")
    pages = {one.get("id"): one.get("href", "") for one in items if one.get("media-type") in PAGES}
    for one in _elements(archive, package_name, "itemref"):
        if href := pages.pop(one.get("idref"), ""):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(package_name), unquote(href.partition("#")[0])))


def _elements(archive: zipfile.ZipFile, part: str, name: str) -> Iterator[Element]:
    """The elements of this name below the root of a part, in any namespace."""
    return ElementTree.fromstring(archive.read(part)).iterfind(f".//{{*}}{name}")
