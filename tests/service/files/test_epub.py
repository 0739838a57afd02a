"""Books in EPUB."""

import pytest

from service.files.epub import ENCRYPTION, read_epub
from service.files.extracted import UnreadableError
from tests.service.files.made import archive, epub

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


def test_a_book_without_text_is_empty() -> None:
    assert read_epub(epub({"a.xhtml": '<img src="scan.png"/>'})).text == ""


@pytest.mark.parametrize(
    "content",
    [
        epub({"a.xhtml": "<p>text"})[:-40],
        archive({"mimetype": "application/epub+zip"}),
        archive({"META-INF/container.xml": "<x"}),
        archive({"META-INF/container.xml": ""}),
        archive({"META-INF/container.xml": '<c><rootfile full-path="../../etc/passwd"/></c>'}),
    ],
)
def test_a_broken_file_is_one_line(content: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^it is broken \(.+\)$"):
        read_epub(content)
