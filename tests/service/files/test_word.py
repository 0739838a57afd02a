"""Word documents as text."""

import pytest

from service.files.extracted import UnreadableError
from service.files.word import read_word
from tests.service.files.made import WORD_XML, archive, paragraph, table, word

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


@pytest.mark.parametrize(
    "content", [word("<w:p>"), archive({"word/document.xml": "<x/>"}), word(paragraph("a"))[:-30], word('<w:p xmlns:w="?"><w:r/>')]
)
def test_a_broken_file_is_one_line(content: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^it is broken \(.+\)$"):
        read_word(content)


def test_entities_without_end_are_refused() -> None:
    thousandfold = "".join(f'<!ENTITY {b} "{f"&{a};" * 1000}">' for a, b in ("ab", "bc", "cd"))
    lol = f'<!DOCTYPE x [<!ENTITY a "{"a" * 1000}">{thousandfold}]>'
    body = f'<?xml version="1.0"?>{lol}<w:document {WORD_XML}><w:body>{paragraph("&d;")}</w:body></w:document>'
    with pytest.raises(UnreadableError, match="it is broken \\(ExpatError: "):
        read_word(word(**{"word/document.xml": body}))
