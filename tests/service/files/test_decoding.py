"""Texts in the encodings that people have."""

import pytest

from service.files.decoding import Decoded, decode, decode_page

CAT = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("café au lait", "latin-1"),
        ("The naïve approach fails in most of the cases that we have seen.", "latin-1"),
        ("The tenant\u2019s notice is \u201ctwo months\u201d \u2013 no more. It costs £5.", "cp1252"),
        ("The committee met in the usual room. " * 300 + "\u2013 £5, café" + " It spoke of the usual things." * 300, "cp1252"),
        ("Der Mieter kann das Mietverhältnis kündigen, wenn er die Frist einhält.", "latin-1"),
        ("El inquilino podrá rescindir el contrato; ¿cuánto cuesta? ¡Mañana!", "cp1252"),
        (CAT, "shift_jis"),
        (CAT * 3, "euc_jp"),
        ("README: このプログラムは blocks を選ぶ。See docs.", "shift_jis"),
        ("Москва является столицей России и крупнейшим городом страны.", "cp1251"),
        ("Zażółć gęślą jaźń. Książka leży na stole, a źródło jest wśród łąk.", "cp1250"),
        ("北京是中华人民共和国的首都\uff0c历史悠久。今天天气很好\uff0c我们去公园散步。", "gb18030"),
    ],
)
def test_other_encodings_are_guessed_and_the_guess_is_reported(text: str, encoding: str) -> None:
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert decoded.problem.startswith("is not UTF-8; read as ")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    "text", [CAT, "Wien 😀", "", "<p align='center'>A readme in Markdown</p>\n\n# Title", "PK is a kick", "BM25"]
)
def test_unicode_is_no_guess(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == Decoded(text)


@pytest.mark.parametrize(
    "text",
    [
        "ID3 is an algorithm that learns decision trees.",
        "FLAC is a codec without loss.",
        "GIF89a is a format of images.",
        "RIFF over WAVE and WEBP",
        "Lieftype",
        "bzh1 is a name",
    ],
)
def test_a_text_about_a_format_is_a_text(text: str) -> None:
    assert decode(text.encode()) == Decoded(text)


@pytest.mark.parametrize("order", ["le", "be"])
@pytest.mark.parametrize("width", [16, 32])
def test_either_order_of_bytes(width: int, order: str) -> None:
    assert decode(f"\ufeffWien {CAT}".encode(f"utf-{width}-{order}")) == Decoded(f"Wien {CAT}")


@pytest.mark.parametrize(
    ("source", "encoding"),
    [
        ('<meta charset="windows-1251"><p>Москва</p>', "cp1251"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS"><p>吾輩は猫である', "shift_jis"),
        ("<meta charset=iso-8859-1><p>the tenant\u2019s £5", "cp1252"),
        ('<?xml version="1.0" encoding="ISO-8859-2"?><p>źródło</p>', "iso-8859-2"),
        ("<meta charset=windows-1251><p>Wien 東京, saved by an editor that did not read this</p>", "utf-8"),
        ("<meta charset=utf-8><p>Wien</p>", "utf-16"),
    ],
)
def test_a_page_says_its_encoding(source: str, encoding: str) -> None:
    assert decode_page(source.encode(encoding)) == Decoded(source)


def test_what_a_page_says_wrongly_is_not_believed() -> None:
    source = "<meta charset=no-such><p>Der Mieter kündigt das Verhältnis, wenn er die Frist einhält."
    assert decode_page(source.encode("cp1252")).text == source
    assert decode_page(source.encode("cp1252")).problem.startswith("is not UTF-8; read as cp1252")
