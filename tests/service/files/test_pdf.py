"""PDF files as text: pages, headings, and what cannot be read."""

import io

import pytest
from pypdf import PdfWriter

from service.files.extracted import UnreadableError
from service.files.pdf import read_pdf
from tests.service.files.made import pdf


def test_pages_and_lines() -> None:
    found = read_pdf(pdf([["The river rises", "in spring."], [], ["It falls."]]))
    assert found == ("The river rises\nin spring.\f\fIt falls.", "", "", True)


def test_the_outline_tells_headings() -> None:
    made = pdf([["1 The River", "It rises.", "Its banks", "are green."], ["The river"]], [("THE RIVER", 0), ("Its banks", 0)])
    assert read_pdf(made).text == "# 1 The River\n\nIt rises.\n\n# Its banks\n\nare green.\fThe river"


def test_a_word_that_the_end_of_a_line_breaks_is_mended() -> None:
    made = pdf([["For exam-", "ple long-lived, A-", "b and 3-", "4"]])
    assert read_pdf(made).text == "For example long-lived, A-\nb and 3-\n4"


def locked(password: str) -> bytes:
    writer = PdfWriter(io.BytesIO(pdf([["The river rises."]])))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def test_a_password_is_needed_only_where_a_reader_needs_it() -> None:
    assert read_pdf(locked("")).text == "The river rises."
    with pytest.raises(UnreadableError, match="it is encrypted: give a copy without a password \\(qpdf --decrypt\\)"):
        read_pdf(locked("secret"))


def test_pages_without_text_are_an_empty_text() -> None:
    assert read_pdf(pdf([[], []])).text == ""


@pytest.mark.parametrize(
    "content", [b"%PDF-1.7", pdf([["a"]])[:200], pdf([["a"]], trailer="/Encrypt 99 0 R"), b"%PDF-1.7\n" + bytes(999)]
)
def test_a_broken_file_is_one_line(content: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^it is broken \(.+\)$"):
        read_pdf(content)


def test_a_broken_page_is_left_out_with_a_warning() -> None:
    content = pdf([["one"], ["two"], ["three"]])
    damaged = content.replace(b"(two) Tj", b"(two( Tj")
    found = read_pdf(damaged)
    assert (found.text, found.problem) == ("one\f\fthree", "is broken in places: page 2 could not be read")
