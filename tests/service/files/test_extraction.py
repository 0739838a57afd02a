"""A file's bytes as a text, whatever kind of file it is."""

import sys

import pytest

from service.files.extraction import extract
from service.files.kinds import NotTextError
from tests.service.files.made import epub, paragraph, pdf, word

FILES = {
    "a PDF": pdf([["The river rises."]]),
    "a Word document (DOCX)": word(paragraph("The river rises.")),
    "an EPUB": epub({"a.xhtml": "<p>The river rises."}),
    "an HTML page": b"<!doctype html><p>The river rises.",
}
EMPTY = {
    "a PDF": pdf([[]]),
    "a Word document (DOCX)": word(),
    "an EPUB": epub({"a.xhtml": ""}),
    "an HTML page": b"<!doctype html><script>run()</script>",
}
LIBRARIES = dict.fromkeys(FILES, "html_to_markdown") | {"a PDF": "pypdf", "a Word document (DOCX)": "mammoth"}


@pytest.mark.parametrize("kind", FILES)
def test_each_kind_holds_its_text_whatever_it_is_called(kind: str) -> None:
    assert extract(FILES[kind], "lies.jpg").text == "The river rises."


def test_a_text_is_itself() -> None:
    assert extract(b"# Wien") == ("# Wien", "", "", False)
    assert extract(b"caf\xe9 au lait").problem.startswith("is not UTF-8")
    with pytest.raises(NotTextError, match="is an image, skipped"):
        extract(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("kind", EMPTY)
def test_a_file_without_text_is_an_error(kind: str) -> None:
    with pytest.raises(NotTextError) as told:
        extract(EMPTY[kind])
    remedy = ": run OCR first (ocrmypdf)" if kind == "a PDF" else ""
    assert str(told.value) == f"is {kind}, skipped: it holds no text{remedy}"


@pytest.mark.parametrize("kind", FILES)
def test_without_the_extra_a_line_says_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("service.files.")]:
        if name.rpartition(".")[2] in ("pdf", "word", "epub", "html"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)
    with pytest.raises(NotTextError, match=r"to read it, install the extra files: pip install 'keyblock\[files\]' \("):
        extract(FILES[kind])


def test_the_error_for_a_broken_file_names_its_kind() -> None:
    with pytest.raises(NotTextError, match="is a PDF, skipped: it is broken \\("):
        extract(b"%PDF-1.7")
