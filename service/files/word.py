"""Turns Word documents into text: mammoth makes a page of HTML of them, by the names of their styles."""

import io

import mammoth

from service.files.html import page_text
from service.files.kinds import Extracted

_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"


def read_word(content: bytes) -> Extracted:
    """Paragraphs, headings, lists, tables and notes, without deleted text and comments."""
    page = mammoth.convert_to_html(
        io.BytesIO(content),
        style_map=_STYLES,
        include_embedded_style_map=False,
        convert_image=lambda _: [],
    )
    return page_text(f"<html>{page.value}</html>")
