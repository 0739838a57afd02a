"""A file's bytes as a text: PDF, Word, EPUB, and what cannot be read."""

import io
import sys

import pytest
from pypdf import PdfWriter

from service.files.epub import ENCRYPTION, read_epub
from service.files.extraction import extract
from service.files.kinds import NotTextError, UnreadableError
from service.files.pdf import read_pdf
from service.files.word import read_word
from tests.service.files.made import SAMPLES, WORD_XML, archive, epub, paragraph, pdf, table, word

LIBRARIES = dict.fromkeys(SAMPLES, "html_to_markdown") | {"a PDF": "pypdf", "a Word document (DOCX)": "mammoth"}


@pytest.mark.parametrize("kind", SAMPLES)
def test_each_kind_holds_its_text_whatever_it_is_called(kind: str) -> None:
    assert extract(SAMPLES[kind], "lies.jpg").text == "The river rises."


@pytest.mark.parametrize("kind", SAMPLES)
def test_without_the_extra_a_line_says_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("service.files.")]:
        if name.rpartition(".")[2] in ("pdf", "word", "epub", "html"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)
    with pytest.raises(NotTextError, match=r"to read it, install the extra files: pip install 'keyblock\[files\]' \("):
        extract(SAMPLES[kind])


def test_pages_and_lines() -> None:
    found = read_pdf(pdf([["The river rises", "in spring."], [], ["It falls."]]))
    assert found == ("The river rises\nin spring.\f\fIt falls.", "", "", True)


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


def test_a_broken_page_is_left_out_with_a_warning() -> None:
    content = pdf([["one"], ["two"], ["three"]])
    damaged = content.replace(b"(two) Tj", b"(two( Tj")
    found = read_pdf(damaged)
    assert (found.text, found.problem) == ("one\f\fthree", "is broken in places: page 2 could not be read")


STYLES = f"""<w:styles {WORD_XML}><w:style w:type="paragraph" w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
<w:style w:type="paragraph" w:styleId="T"><w:name w:val="Title"/></w:style></w:styles>"""
RELATIONS = """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>"""


def test_paragraphs_headings_and_tables() -> None:
    made = word(
        paragraph("Rivers", "Heading1"), paragraph("They rise."), table(["river", "km"], ["Donau", "2850"]), paragraph("End")
    )
    assert read_word(made).text == "# Rivers\n\nThey rise.\n\n| river | km |\n| --- | --- |\n| Donau | 2850 |\n\nEnd"


def test_headings_are_known_by_the_name_of_their_style_in_any_language_of_word() -> None:
    more = {"word/styles.xml": STYLES, "word/_rels/document.xml.rels": RELATIONS}
    made = word(paragraph("Flüsse", "T"), paragraph("Donau", "berschrift2"), paragraph("lang"), **more)
    assert read_word(made).text == "# Flüsse\n\n## Donau\n\nlang"


def test_what_was_inserted_stays_and_what_was_deleted_goes() -> None:
    deleted = "<w:del><w:r><w:delText>old </w:delText></w:r></w:del>"
    changed = f"<w:ins><w:r><w:t>new </w:t></w:r></w:ins>{deleted}<w:r><w:t>text</w:t></w:r>"
    assert read_word(word(f"<w:p>{changed}</w:p>")).text == "new text"


def test_entities_without_end_are_refused() -> None:
    thousandfold = "".join(f'<!ENTITY {b} "{f"&{a};" * 1000}">' for a, b in ("ab", "bc", "cd"))
    lol = f'<!DOCTYPE x [<!ENTITY a "{"a" * 1000}">{thousandfold}]>'
    body = f'<?xml version="1.0"?>{lol}<w:document {WORD_XML}><w:body>{paragraph("&d;")}</w:body></w:document>'
    with pytest.raises(NotTextError, match="it is broken \\(ExpatError: "):
        extract(word(**{"word/document.xml": body}))


LOCK = """<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><e:EncryptedData xmlns:e="http://www.w3.org/2001/04/xmlenc#">
<e:CipherData><e:CipherReference URI="OEBPS/{name}"/></e:CipherData></e:EncryptedData></encryption>"""


def test_chapters_in_the_order_of_reading() -> None:
    made = epub(
        {"z%20one.xhtml": "<h1>One</h1><p>It began<br/>at night.</p>", "a.xhtml": "<h1>Two</h1><p>It ended.</p>"}, "A  Night"
    )
    assert read_epub(made) == ("# One\n\nIt began\nat night.\n\n# Two\n\nIt ended.", "A Night", "", False)


def test_copy_protection_is_an_error_but_protected_fonts_are_not() -> None:
    assert read_epub(epub({"a.xhtml": "<p>text"}, **{ENCRYPTION: LOCK.format(name="font.otf")})).text == "text"
    with pytest.raises(UnreadableError, match="it is encrypted: give a copy without copy protection"):
        read_epub(epub({"a.xhtml": "<p>text"}, **{ENCRYPTION: LOCK.format(name="a.xhtml")}))


CONTAINERS = ("", "<x", '<c><rootfile full-path="../a"/></c>')
BROKEN = [
    *(b"%PDF-1.7", pdf([["a"]])[:200], b"%PDF-1.7\n" + bytes(999), pdf([["a"]], trailer="/Encrypt 99 0 R")),
    *(word("<w:p>"), archive({"word/document.xml": "<x/>"}), word(paragraph("a"))[:-30], word('<w:p xmlns:w="?"><w:r/>')),
    *(epub({"a.xhtml": "<p>text"})[:-40], archive({"mimetype": "application/epub+zip"})),
    *(archive({"mimetype": "application/epub+zip", "META-INF/container.xml": one}) for one in CONTAINERS),
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_one_line(content: bytes) -> None:
    with pytest.raises(NotTextError, match=r"^is an? .+, skipped: it is broken \(.+\)$"):
        extract(content)


@pytest.mark.parametrize("content", [pdf([[], []]), epub({"a.xhtml": '<img src="scan.png"/>'})])
def test_a_file_without_text_is_refused(content: bytes) -> None:
    with pytest.raises(NotTextError, match="skipped: it holds no text"):
        extract(content)
