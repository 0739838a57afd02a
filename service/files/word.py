"""Turns Word documents into text: mammoth makes a page of HTML of them, by the names of their styles."""

import io
from xml.parsers.expat import ExpatError

import mammoth

from service.files.archives import Archive
from service.files.extracted import Extracted, UnreadableError
from service.files.html import page_text

DOCUMENT = "word/document.xml"
MOST_MIB = 64  # of XML, with the document counted twice; reading takes thirty times as much memory
_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
_BACK = ' href="#footnote-ref', ' href="#endnote-ref'


def read_word(content: bytes) -> Extracted:
    """Paragraphs, headings, lists, tables and notes, without deleted text and comments. Raises UnreadableError."""
    archive = Archive(content, MOST_MIB)
    if b"<!DOCTYPE" in archive.read(DOCUMENT):  # no Word document has one, and its entities could expand without limit
        raise UnreadableError("it is broken (it defines entities)")
    archive.count_all((".xml", ".rels"))
    try:
        page = mammoth.convert_to_html(
            io.BytesIO(content),
            style_map=_STYLES,
            include_embedded_style_map=False,
            convert_image=lambda _: [],
        ).value
    except (
        ExpatError,
        KeyError,
        ValueError,
        OSError,
        RecursionError,
        AttributeError,
        IndexError,
        RuntimeError,
    ) as error:
        raise UnreadableError(f"it is broken ({type(error).__name__}: {error})") from None
    return page_text(f"<html>{page}</html>")
