"""What a file is, whatever it is called."""

import time

import pytest

from service.files.kinds import Kind, kind_of, refusal
from tests.service.files.made import archive, epub, paragraph, pdf, word


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (pdf([["Wien"]]), Kind.PDF),
        (b"\n%PDF-1.7", Kind.PDF),
        (word(paragraph("Wien")), Kind.WORD),
        (word(paragraph("Wien"))[:-30], Kind.WORD),
        (archive({"customXml/item1.xml": bytes(range(256)) * 64, "word/document.xml": "<x/>"}), Kind.WORD),
        (epub({"a.xhtml": "<p>Wien"}), Kind.EPUB),
        (b"<!DOCTYPE html>\n<html><script>alert(1)</script>", Kind.HTML),
        (b"\xef\xbb\xbf\n<!-- saved --><HTML lang=en>", Kind.HTML),
        (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "x">', Kind.HTML),
        (b"# Wien", None),
        (b"", None),
    ],
)
@pytest.mark.parametrize("name", ["", "lies.txt", "lies.docx"])
def test_a_file_is_recognised_by_its_bytes(content: bytes, kind: Kind | None, name: str) -> None:
    assert kind_of(content, name) is kind
    assert kind is not None or refusal(content) is None


@pytest.mark.parametrize("content", [b"<div>Wien</div>", "\ufeff<p>Wien".encode("utf-16"), b""])
def test_a_piece_of_a_page_is_recognised_by_its_name(content: bytes) -> None:
    assert kind_of(content, "docs/Wien.HTM") is Kind.HTML
    assert kind_of(content, "docs/html") is None


def test_a_name_makes_no_page_of_an_image() -> None:
    assert kind_of(b"\x89PNG\r\n\x1a\n", "a.html") is None


def test_many_comments_before_a_text_take_no_time() -> None:
    """Each comment more doubled it: forty would take days."""
    comments = "<!-- generated -->\n" * 400
    started = time.thread_time()
    assert kind_of(f"{comments}# Title".encode()) is None
    assert time.thread_time() - started < 30
    assert kind_of(f"{comments}<html>".encode()) is Kind.HTML


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (archive({"a.txt": "Wien"}), "a ZIP archive"),
        (archive({"mimetype": "application/vnd.oasis.opendocument.text"}), "an OpenDocument file"),
        (archive({"[Content_Types].xml": "", "xl/workbook.xml": ""}), "an Excel workbook (XLSX)"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an old Office document (DOC, XLS or PPT)"),
        (b"{\\rtf1\\ansi text}", "rich text (RTF)"),
        (b"\x1f\x8b\x08\0", "compressed"),
        (b"\x89PNG\r\n\x1a\n", "an image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image"),
        (b"GIF89a\x01\0\x01\0\x80\0\0", "an image"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "an image"),
        (b"RIFF\x24\0\0\0WAVEfmt \x10\0", "sound or video"),
        (b"ID3\x04\0\0\0\0\x0f\x76", "sound or video"),
        (b"OggS\0\x02", "sound or video"),
        (b"fLaC\0\0\0\x22", "sound or video"),
        (b"\0\0\0\x20ftypisom", "sound or video"),
        (b'<?xml version="1.0"?><svg xmlns="x">', "an image"),
        (b"\x7fELF\x02\x01\x01\0\0", "binary"),
    ],
)
def test_what_is_no_text_is_refused_by_what_it_is(content: bytes, kind: str) -> None:
    assert kind_of(content) is None
    said, advice = (refusal(content) or "").split(", skipped: ")
    assert said == f"is {kind}"
    assert advice
