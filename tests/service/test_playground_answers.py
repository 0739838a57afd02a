"""What the page at / shows of what answers, in Chromium, at a real service: spans in the texts, the threshold among the cards."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys

from keyblock import Ranker
from keyblock.bundle import MANIFEST_FILE
from service.settings import DEFAULT_BUNDLE
from tests.service.browser import Page, chromium, served

QUERY = "When may a tenant end the lease early?"
SENTENCE = "A tenant may end the lease early, after twelve months and with two months of notice."
BEFORE = "We had soup for lunch. The train was late again. "
AFTER = " Our dog likes to sleep in the sun."
EMOJI = "😀👨‍👩‍👧 𐎀 e\u0301 " * 3
MARKUP = SENTENCE.replace("lease", "<b onclick='window.hit = 1'>lease</b><img src=x onerror='window.hit = 2'>")
NO_ANSWER = [BEFORE + AFTER, "Small repairs are paid by the tenant. The rent is due on the first day of the month."]
DOCUMENTS = [*NO_ANSWER, BEFORE + SENTENCE + AFTER]
ANSWERS = len(NO_ANSWER)  # the place of the one that does
DECLARED, UNDECLARED = "with-a-threshold", "without-a-threshold"


def copied(path: Path, name: str, **changed: Any) -> Path:
    """The embedded bundle under another name, with other values in its pipeline."""
    shutil.copytree(DEFAULT_BUNDLE, path)
    manifest = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))
    manifest["name"] = name
    manifest["pipeline"] |= changed
    (path / MANIFEST_FILE).write_text(json.dumps(manifest), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def threshold() -> float:
    """Between the document that answers and the others."""
    answers, other, *_ = (result.relevance_score for result in Ranker.open(DEFAULT_BUNDLE).rank(QUERY, DOCUMENTS).results)
    return (answers + other) / 2


@pytest.fixture(scope="module")
def url(threshold: float, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two models that rank alike. The first declares the threshold, and its spans come from shared words, whatever is embedded."""
    folder = tmp_path_factory.mktemp("bundles")
    declared = copied(folder / "a", DECLARED, min_score=threshold, spans=None)
    with served(bundles=[declared, copied(folder / "b", UNDECLARED, min_score=None)]) as url:
        yield url


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(driver: Chrome, url: str) -> Iterator[Page]:
    page = Page(driver, url)
    page.open()
    yield page
    assert driver.get_log("browser") == []


MARKS = """return [...document.querySelectorAll(`#result-${arguments[0]} mark.answer`)]
    .map((mark) => [mark.textContent, mark.dataset.label, mark.title])"""
LAYOUT = """return [...document.querySelectorAll(".cards > *")]
    .map((element) => element.dataset.index === undefined ? element.textContent : Number(element.dataset.index))"""


def unfold(page: Page) -> None:
    page.run("for (const details of document.querySelectorAll('.card details')) details.open = true")
    page.wait(lambda: len(page.all(".card .text")) == len(page.all(".card")))


def check_spans(page: Page, texts: list[str]) -> None:
    """Each span of the answer is marked, in its place and with its score, and nothing else is; each text is whole."""
    unfold(page)
    for result in page.answer()["results"]:
        index, spans = result["index"], result.get("relevant_spans", [])
        text = texts[index]
        marked = [tuple(mark) for mark in page.run(MARKS, index)]
        assert sorted(marked) == sorted(
            (text[s["start"] : s["end"]], f"answers {s['score']:.2f}", f"This answers: score {js(s['score'])}") for s in spans
        )
        assert page.texts(f"#result-{index} .text") == [text]
        assert page.texts(f"#result-{index} .span b") == [f"{span['score']:.2f}" for span in spans]


def js(number: float) -> str:
    """A number as JSON and JavaScript write it."""
    return json.dumps(number)


@pytest.mark.parametrize("before", [BEFORE, EMOJI + BEFORE], ids=["plain", "emoji"])
@pytest.mark.parametrize("sentence", [SENTENCE, MARKUP], ids=["words", "markup"])
def test_the_sentence_that_answers_is_marked(page: Page, before: str, sentence: str) -> None:
    texts = [*NO_ANSWER, before + sentence + AFTER]
    page.ask(QUERY, texts)
    check_spans(page, texts)
    assert [text for text, _, _ in page.run(MARKS, ANSWERS)] == [sentence]
    assert page.run("return document.querySelector('mark.answer').parentElement.dataset.blocks") == "0", (
        "in the block that was read"
    )
    assert page.run("return window.hit") is None
    assert page.all("#results img, #results b[onclick]") == []


def test_spans_of_the_embedded_model_are_shown(page: Page) -> None:
    texts = [EMOJI + document for document in DOCUMENTS]
    page.fill("#model", UNDECLARED)
    page.ask(QUERY, texts)
    check_spans(page, texts)
    assert page.answer()["model"] == UNDECLARED


def test_blocks_that_were_read_and_spans_that_answer_look_different(page: Page) -> None:
    """A span over two blocks and the gap after them; the label stands where it begins."""
    blocks = [{"start": 4, "end": 6, "score": 1.5}, {"start": 2, "end": 4, "score": 0.5}]
    spans = [{"start": 3, "end": 7, "score": 0.9}]
    shown = "m.highlighted({ text: '01234567<b>', blocks: a[0], spans: a[1] }, [1, 0]).map((node) => node.outerHTML ?? node)"
    nodes = page.module("highlights", shown, blocks, spans)
    answer = '<mark tabindex="-1" class="answer" title="This answers: score 0.9" data-spans="0"'
    assert [node.replace(' style="--strength: 1;"', "").replace(' style="--strength: 0;"', "") for node in nodes] == [
        "01",
        f'<mark tabindex="-1" class="" data-blocks="1" data-label="2 · 0.50">2{answer} data-label="answers 0.90">3</mark></mark>',
        f'<mark tabindex="-1" class="best" data-blocks="0" data-label="1 · 1.50">{answer}>45</mark></mark>',
        f"{answer}>6</mark>",
        "7<b>",
    ]


def test_a_button_leads_to_a_span(page: Page) -> None:
    page.ask(QUERY, [NO_ANSWER[0], BEFORE * 60 + SENTENCE + AFTER])
    page.run("document.querySelector('#result-1 .text').scrollTo(0, 0); document.querySelector('#result-1 summary').focus()")
    page.press(Keys.TAB)
    assert page.run("return document.activeElement.getAttribute('aria-label')").startswith("Span that answers, score 0.")
    page.press(Keys.ENTER)
    inside = """const [text, mark] = ["", " mark.answer.found"].map((within) => document.querySelector(`#result-1 .text${within}`));
        const [box, found] = [text.getBoundingClientRect(), mark?.getBoundingClientRect()];
        return found && found.top >= box.top && found.bottom < box.bottom;"""
    page.wait(lambda: page.run(inside))
    page.press(Keys.TAB)
    assert page.run("return document.activeElement.className") == "block"


def test_the_line_stands_where_the_threshold_is_reached_no_more(page: Page, threshold: float) -> None:
    page.ask(QUERY, DOCUMENTS)
    order = [result["index"] for result in page.answer()["results"]]
    assert order[0] == ANSWERS
    assert page.run(LAYOUT) == [ANSWERS, f"below {threshold:.3f}: probably no answer", *order[1:]]
    assert [card.get_attribute("id") for card in page.all(".card.below")] == [f"result-{index}" for index in order[1:]]
    assert page.all(".nothing") == []
    page.ask(QUERY, DOCUMENTS[ANSWERS:])
    assert page.run(LAYOUT) == [0], "all reach it"


def test_without_a_threshold_there_is_no_line(page: Page) -> None:
    page.fill("#model", UNDECLARED)
    for texts in (DOCUMENTS, NO_ANSWER):
        page.ask(QUERY, texts)
        assert page.answer()["model"] == UNDECLARED
        assert page.run(LAYOUT) == [result["index"] for result in page.answer()["results"]]
        assert page.all(".threshold, .nothing, .below") == []


def test_the_page_says_above_the_cards_that_nothing_answers(page: Page, threshold: float) -> None:
    page.ask(QUERY, NO_ANSWER)
    assert page.texts(".nothing") == [f"Nothing here answers this. No score reaches {threshold:.3f}."]
    above = """const [nothing, cards] = [".nothing", ".cards"].map((at) => document.querySelector(at).getBoundingClientRect());
        return nothing.bottom < cards.top"""
    assert page.run(above)
    assert len(page.all(".card.below")) == len(page.run(LAYOUT)) == len(NO_ANSWER), "the cards stay, and there is no line"
    assert page.texts("#status")[0].endswith("Nothing here answers this.")


def test_the_page_says_nothing_about_unscored_documents(page: Page) -> None:
    page.fill("#deadline_ms", "0")
    page.ask(QUERY, NO_ANSWER)
    assert all("scored_by" in result for result in page.answer()["results"])
    assert page.all(".threshold, .nothing, .below") == []


@pytest.mark.parametrize(
    ("results", "reached", "first", "nothing"),
    [
        ([(0.9, None), (0.2, None), (0.001, "selector")], [True, False, None], 1, None),
        ([(0.9, None), (0.001, "selector")], [True, None], -1, None),
        ([(0.5, None), (0.49, None)], [True, False], 1, None),
        ([(0.2, None), (0.001, "selector")], [False, None], None, "Nothing that the model has scored answers this."),
        ([(0.001, "selector"), (0.0, "order")], [], None, None),
        ([], [], None, None),
    ],
)
def test_only_what_the_model_has_scored_is_judged(
    page: Page, results: list[tuple[float, str | None]], reached: list[bool | None], first: int | None, nothing: str | None
) -> None:
    placed = [{"relevance_score": score, "text": "a"} | ({"scored_by": by} if by else {}) for score, by in results]
    info = {"models": [{"model": "one", "answers": {"min_score": 0.5}}]}
    verdict = page.module("threshold", "m.verdictOf(a[0], a[1], 'one')", placed, info)
    assert (verdict["reached"], verdict.get("first"), verdict.get("nothing")) == (reached, first, nothing)


def test_logits_are_held_to_the_threshold_as_probabilities(page: Page) -> None:
    """A bundle may answer with logits; the threshold is a probability all the same. A text of spaces answers nothing."""
    placed = [
        {"relevance_score": 0.1, "text": "a"},
        {"relevance_score": -0.1, "text": "a"},
        {"relevance_score": -9, "text": " ", "scored_by": "order"},
    ]
    info = {"answers": {"min_score": 0.5}, "pipeline": {"activation": {"name": "identity"}}}
    assert page.module("threshold", "m.verdictOf(a[0], a[1], 'one')", placed, info)["reached"] == [True, False, False]


COLOURS = """const style = getComputedStyle(document.querySelector(arguments[0]), arguments[1]);
    return [style.color, style.backgroundColor].map((colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number))"""


def luminance(colour: list[float]) -> float:
    """As WCAG 2 has it, of red, green and blue from 0 to 255."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (value / 255 for value in colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_spans_can_be_read_in_light_and_dark(page: Page, scheme: str) -> None:
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    try:
        page.ask(QUERY, DOCUMENTS)
        unfold(page)
        for part in (None, "::before"):
            low, high = sorted(luminance(colour) for colour in page.run(COLOURS, "mark.answer", part))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, part)
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
