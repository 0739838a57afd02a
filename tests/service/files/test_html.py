"""Pages of HTML as text, and texts in the encodings that people have."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.files.decoding import decode, decode_page
from service.files.html import page_text, read_page
from service.files.kinds import Extracted
from tests.service.files.made import page


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<h1>Big <em>head</em></h1>It<!-- - -->s text.<h2>More\n of it</h2>", "# Big head\n\nIts text.\n\n## More of it"),
        ("<p>One two\n three.<p>Four<br>five<br><br>six", "One two\nthree.\n\nFour\nfive\n\nsix"),
        ("<div>a<div>b</div>c</div>d<span>e</span> <b>f </b>g", "a\n\nb\n\nc\n\nde f g"),
        ("<ul><li>a<li>b<ul><li>c</ul><li></ul>d", "- a\n- b\n  - c\n-\n\nd"),
        ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
        ("x<table><tr><th>A<th>B<tr><td>1<td><p>2</p><p>3</p></table>y", "x\n\n| A | B |\n| --- | --- |\n| 1 | 2 3 |\n\ny"),
        ("<table><thead><tr><td>A<td>B<tbody><tr><td>1<td>2</table>", "| A | B |\n| --- | --- |\n| 1 | 2 |"),
        ("<table><tr><td>Left<td><table><tr><td>1<td>2</table></table>", "| Left | 1 2 |\n| --- | --- |"),
        ("<table><tr><td>One column<tr><td>of text</table>", "| One column |\n| --- |\n| of text |"),
        ("<pre>def f():\n    return 1<br>f()</pre>x", "```\ndef f():\n    return 1\nf()\n```\n\nx"),
        ("<nav>Home</nav><script>a</script><style>b</style><p hidden>c</p><p style='display: none'>d</p>e<button>f</button>", "e"),
        ("東<b>京</b>都&nbsp;&amp; 1&lt;2 <ruby>漢<rt>かん</rt></ruby>", "東京都 & 1<2 漢"),
        ("<h2></h2><ul><li></ul>text", "-\n\ntext"),
        ("", ""),
        ("<!-- nothing -->", ""),
        ("<p>cut <b>short", "cut short"),
        ("a <a href='/u'>link</a>, <code>x_y</code> and <img alt=i src=i><i>more</i>", "a link, x_y and more"),
        ("<form>a <label>b</label></form><dl><dt>c<dd>d</dl><blockquote>e</blockquote>", "a b\n\nc\n\nd\n> e"),
        ("<svg><text>a</text></svg><select><option>b</select><video>c</video><object>d</object><textarea>e</textarea>", "e"),
    ],
)
def test_what_a_page_says(source: str, text: str) -> None:
    assert page_text(f"<!doctype html><title>T</title>{source}").text == text
    assert page_text(source).text == text


def test_the_title_is_returned_separately() -> None:
    found = read_page("<html><head><title> A\n page </title></head><body>東京".encode())
    assert found == ("東京", "A page", "", False)


def test_xhtml_may_close_any_element_at_once() -> None:
    assert page_text(page("<p>a<br/>b<a id='x'/>c</p>")).text == "a\nbc"


def test_a_guess_at_the_encoding_is_reported() -> None:
    assert read_page("<p>Der Mieter kündigt das Verhältnis.</p>".encode("cp1252")).problem.startswith("is not UTF-8; read as")


def test_a_page_may_be_deep_and_long() -> None:
    started = time.thread_time()
    assert page_text("<div>" * 1000 + "deep") == ("deep", "", "", False)
    assert len(page_text("<p>word</p>" * 50_000).text) == 50_000 * 6 - 2
    assert time.thread_time() - started < 30


def test_a_page_that_is_deeper_than_any_is_cut_off_with_a_warning() -> None:
    found = page_text("before" + "<div>" * 3000 + "deep")
    assert (found.text, found.problem) == ("before", "nests more than 1,024 elements; what is deeper is not read")


@given(
    st.lists(st.sampled_from("<p> <h1> </h1> <ul> </ul> <li> <table> <tr> <td> <th> </table> <pre> </pre> <br> a b".split())).map(
        "".join
    )
)
def test_of_any_tags_all_text_is_kept(source: str) -> None:
    kept = page_text(source).text
    assert (kept.count("a"), kept.count("b")) == (
        source.count("a") - source.count("table"),
        source.count("b") - source.count("table") - source.count("br"),
    )


@given(st.text())
def test_any_text_is_a_page(source: str) -> None:
    assert "\0" not in page_text(source).text


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
def test_unicode_is_no_guess(encoding: str) -> None:
    for text in (CAT, "Wien 😀", "", "<p align='center'>A readme in Markdown</p>\n\n# Title"):
        assert decode(text.encode(encoding)) == Extracted(text)
    if encoding.startswith("utf-8"):
        return
    for order in ("le", "be"):
        assert decode(f"\ufeffWien {CAT}".encode(f"{encoding}-{order}")) == Extracted(f"Wien {CAT}")


@pytest.mark.parametrize(
    ("content", "text", "problem"),
    [
        ("Wien 東京 ".encode() * 9 + b"\xe9", "Wien 東京 " * 9 + "\ufffd", "is not all UTF-8 (byte 109, 0xe9)"),
        (b"\xff\xfeW\x00i\x00", "Wi", ""),
        (b"\xff\xfeW\x00i\x00n", "Wi\ufffd", "is not all UTF-16"),
        (b"x" * 9000 + b"\0", "x" * 9000 + "\0", ""),
    ],
)
def test_what_is_wrong_in_a_text_is_replaced_and_reported(content: bytes, text: str, problem: str) -> None:
    decoded = decode(content)
    assert decoded.text == text
    assert decoded.problem.startswith(problem)
    assert bool(decoded.problem) == bool(problem)


def test_a_text_about_a_format_is_a_text() -> None:
    for about in (
        "ID3 is an algorithm",
        "FLAC is a codec",
        "GIF89a is a format",
        "RIFF over WAVE and WEBP",
        "Lieftype",
        "bzh1",
        "PK",
    ):
        assert decode(about.encode()) == Extracted(about)


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
    assert decode_page(source.encode(encoding)) == Extracted(source)


def test_what_a_page_says_wrongly_is_not_believed() -> None:
    source = "<meta charset=no-such><p>Der Mieter kündigt das Verhältnis, wenn er die Frist einhält."
    assert decode_page(source.encode("cp1252")).text == source
    assert decode_page(source.encode("cp1252")).problem.startswith("is not UTF-8; read as cp1252")
