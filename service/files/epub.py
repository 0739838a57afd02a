"""Reads books in EPUB: their chapters in reading order, each a page of XHTML."""

import posixpath
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from lxml import etree

from service.files.archives import Archive
from service.files.extracted import Extracted, UnreadableError
from service.files.html import read_page

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
PAGES = ("application/xhtml+xml", "text/html")


def read_epub(content: bytes) -> Extracted:
    """The chapters, separated by blank lines, and the book's title. Raises UnreadableError."""
    archive = Archive(content)
    package_name = next((one.get("full-path", "") for one in _elements(_xml(archive, CONTAINER), "rootfile")), "")
    package = _xml(archive, package_name)
    names = list(_chapters(package, posixpath.dirname(package_name)))
    if ENCRYPTION in archive and not _encrypted_parts(archive).isdisjoint(names):
        raise UnreadableError("it is encrypted: give a copy without copy protection")
    pages = [read_page(archive.read(name)) for name in names if name in archive]
    title = next((" ".join((one.text or "").split()) for one in _elements(package, "title")), "")
    problem = next((page.problem for page in pages if page.problem), "")
    return Extracted("\n\n".join(page.text for page in pages if page.text), title, problem)


def _chapters(package: Any, folder: str) -> Iterator[str]:
    """The names of the pages, in reading order."""
    pages = {one.get("id"): one.get("href", "") for one in _elements(package, "item") if one.get("media-type") in PAGES}
    for one in _elements(package, "itemref"):
        if href := pages.pop(one.get("idref"), ""):
            yield posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))


def _encrypted_parts(archive: Archive) -> frozenset[str]:
    """The names of encrypted parts; fonts are often among them, which does no harm."""
    return frozenset(unquote(one.get("URI", "")) for one in _elements(_xml(archive, ENCRYPTION), "CipherReference"))


def _elements(root: Any, name: str) -> Iterator[Any]:
    """The elements of this name, in any namespace."""
    return root.iter(f"{{*}}{name}") if root is not None else iter(())


def _xml(archive: Archive, name: str) -> Any:
    """A part as XML, without entities and without the network. Raises UnreadableError."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, recover=True)
    try:
        return etree.fromstring(archive.read(name), parser)
    except etree.XMLSyntaxError as error:
        raise UnreadableError(f"it is broken ({name!r}: {error})") from None
