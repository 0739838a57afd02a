"""Pages of HTML as text: what a reader sees, and where parts begin."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.files.html import page_text, read_page
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
    assert page_text("<html><head><title> A\n page </title></head><body>text").title == "A page"


def test_xhtml_may_close_any_element_at_once() -> None:
    assert page_text(page("<p>a<br/>b<a id='x'/>c</p>")).text == "a\nbc"


def test_a_guess_at_the_encoding_is_reported() -> None:
    assert read_page("<p>Wien 東京</p>".encode()) == ("Wien 東京", "", "", False)
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
