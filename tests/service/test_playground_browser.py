"""The page at /, in Chromium, at a real service: what it shows of blocks, answers and the threshold, and how it is used."""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys

from keyblock.bundle import MANIFEST_FILE
from service.keys.keys import make
from service.settings import DEFAULT_BUNDLE
from tests.conftest import ROOT
from tests.service.browser import Page, chromium, served
from tests.service.faults import PATIENCE
from tests.service.files.made import archive, epub, paragraph, pdf, word
from tests.support.programs import need

SAMPLE = json.loads((ROOT / "service" / "playground" / "sample.json").read_text(encoding="utf-8"))
FILLER = "The committee met in the usual room and spoke of the usual things, at the usual length. "
ODD = [
    "😀👨‍👩‍👧 " * 30
    + FILLER * 20
    + "𐎀𐎁𐎂 the river 🌊 rose. "
    + FILLER * 20
    + "e\u0301 The river bridge is closed 🚧! "
    + FILLER * 5,
    "مرحبا 東京都。 river 🌉 bridge",
    FILLER * 3,
]
HOSTILE = [
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'> the river <b>bridge</b>",
    "</textarea></pre></code><svg onload=window.hit=3> river",
    "javascript:window.hit=4 river KEYBLOCK\nKEYBLOCK\n$(touch hit) `touch hit`",
]
HOSTILE_QUERY = """it's the "river"' <img src=x onerror="window.hit=5"> $HOME `bridge` \\ !! & $(exit 3)"""


QUERY = "When may a tenant end the lease early?"
SENTENCE = "A tenant may end the lease early, after twelve months and with two months of notice."
BEFORE = "We had soup for lunch. The train was late again. "
AFTER = " Our dog likes to sleep in the sun."
MARKUP = SENTENCE.replace("lease", "<b onclick='window.hit = 1'>lease</b><img src=x onerror='window.hit = 2'>")
NO_ANSWER = [BEFORE + AFTER, "Small repairs are paid by the tenant. The rent is due on the first day of the month."]
DOCUMENTS = [*NO_ANSWER, BEFORE + SENTENCE + AFTER]
ANSWERS = len(NO_ANSWER)  # the place of the one that does
THRESHOLD = 0.3  # the one that answers has 0.67, the others have 0.01 at most
UNDECLARED = "tiny"


@pytest.fixture(scope="module")
def url(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The embedded model with the threshold, and with spans that come from shared words; the tiny one declares no threshold."""
    declared = tmp_path_factory.mktemp("bundles") / "declared"
    shutil.copytree(DEFAULT_BUNDLE, declared, copy_function=os.symlink)
    manifest = json.loads((declared / MANIFEST_FILE).read_text(encoding="utf-8"))
    manifest["name"] = "minilm-with-a-threshold"
    manifest["pipeline"] |= {"min_score": THRESHOLD, "spans": None}
    (declared / MANIFEST_FILE).unlink()
    (declared / MANIFEST_FILE).write_text(json.dumps(manifest), encoding="utf-8")
    with served(bundles=[declared, bundle_path]) as url:
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
    complaints = [entry["message"] for entry in driver.get_log("browser") if "Failed to load resource" not in entry["message"]]
    assert complaints == []


def test_the_reference_is_shown_without_the_internet(driver: Chrome, url: str) -> None:
    page = Page(driver, url)
    page.open("docs", "#reference .opblock")
    operations = page.each(".opblock-summary", "one.innerText.split('\\n').slice(0, 2)")
    assert ["POST", "/rerank"] in [[part.strip() for part in operation] for operation in operations]
    page.all(".opblock-summary-control")[0].click()
    page.wait(lambda: page.all(".opblock-body .try-out__btn"))[0].click()
    page.wait(lambda: page.all(".opblock-body .execute"))
    page.press_on(".opblock-body .execute")
    page.wait(lambda: "200" in " ".join(page.texts(".live-responses-table .response .response-col_status")))
    fetched = [request["url"] for request in page.fetched()]
    assert {f"{url}openapi.json", f"{url}rerank"} <= {*fetched}
    assert [address for address in fetched if not address.startswith((url, "data:"))] == []
    assert [entry["message"] for entry in driver.get_log("browser")] == []


def post(url: str, request: dict[str, Any]) -> Any:
    """The service's answer to a client that does not use the page."""
    with urllib.request.urlopen(f"{url}rerank", json.dumps(request).encode(), timeout=PATIENCE) as response:
        return json.loads(response.read())


def check_highlights(page: Page, texts: list[str], answer: Any) -> None:
    """Each card has its document's text, whole, with its blocks highlighted, each in its place and with its score."""
    for result in answer["results"]:
        pieces = page.pieces(result["index"])
        text = texts[result["index"]]
        assert "".join(piece for piece, _, _ in pieces) == text
        shown = {}
        at = 0
        for piece, blocks, label in pieces:
            for block in map(int, (blocks or "").split()):
                start, _, words = shown.get(block, (at, at, label))
                shown[block] = (start, at + len(piece), words)
            at += len(piece)
        expected = {n: (b["start"], b["end"], f"{n + 1} · {b['score']:.2f}") for n, b in enumerate(result.get("blocks", []))}
        assert shown == expected


def marks(page: Page, index: int) -> list[list[str]]:
    return page.each(f"#result-{index} mark.answer", "[one.textContent, one.dataset.label, one.title]")


def layout(page: Page) -> list[int | str]:
    """The documents of the cards, and the words between them."""
    return page.each(".cards > *", "one.dataset.index === undefined ? one.textContent : Number(one.dataset.index)")


def check_spans(page: Page, texts: list[str]) -> None:
    """Each span of the answer is marked, in its place and with its score, and nothing else is; each text is whole."""
    page.each(".card details", "one.open = true")
    page.wait(lambda: len(page.all(".card .text")) == len(page.all(".card")))
    for result in page.answer()["results"]:
        index, spans = result["index"], result.get("relevant_spans", [])
        text = texts[index]
        assert sorted(marks(page, index)) == sorted(
            [text[s["start"] : s["end"]], f"answers {s['score']:.2f}", f"This answers: score {json.dumps(s['score'])}"]
            for s in spans
        )
        assert page.texts(f"#result-{index} .text") == [text]
        assert page.texts(f"#result-{index} .span b") == [f"{span['score']:.2f}" for span in spans]


def shown(score: float) -> str:
    return "<0.001" if 0 < score < 0.001 else f"{score:.3f}"


def test_the_sample_in_one_press(page: Page, url: str) -> None:
    page.one("#try").click()
    page.wait(lambda: page.all(".card"))
    answer = post(url, SAMPLE | {"return_blocks": True})
    titles = [document["title"] for document in SAMPLE["documents"]]
    ranked = [titles[result["index"]] for result in answer["results"]]
    assert ranked != titles
    assert page.texts(".before .name") == titles
    assert page.texts(".after .name") == page.texts(".card .line .name") == ranked
    assert page.texts(".after .score") == [shown(result["relevance_score"]) for result in answer["results"]]
    assert answer["results"][0]["index"] > 0  # the model finds what the first stage did not
    check_highlights(page, [document["text"] for document in SAMPLE["documents"]], answer)
    assert set(answer["meta"]["timings_ms"]) - {"total"} == set(page.texts(".timings dt.stage"))
    assert page.texts("#result-0 .where")[0].startswith("Best block at ")
    assert page.one("#status").get_property("textContent").startswith("8 documents ranked in ")


def test_offsets_are_code_points(page: Page, url: str) -> None:
    page.ask("river bridge", ODD)
    answer = post(url, {"query": "river bridge", "documents": ODD, "return_blocks": True})
    assert answer["results"][0]["blocks"]
    check_highlights(page, ODD, answer)
    assert page.module("text", "m.unitsOf(a[0], a[1])", "a😀b\u0301𐎀", [5, 0, 1, 2, 3, 4]) == [7, 0, 1, 3, 4, 5]
    assert page.module("text", "m.unitsOf('\\ud83d!\\ude00', [1, 2, 3])") == [1, 2, 3]
    overlapping = [{"start": 2, "end": 6}, {"start": 4, "end": 8}, {"start": 0, "end": 10}]
    pieces = page.module("text", "m.piecesOf({ start: 0, end: 10 }, a[0]).map((p) => [p.start, p.end, p.over])", overlapping)
    assert pieces == [[0, 2, [2]], [2, 4, [0, 2]], [4, 6, [0, 1, 2]], [6, 8, [1, 2]], [8, 10, [2]]]


def directions(page: Page, selector: str) -> list[str]:
    return page.each(selector, "getComputedStyle(one).direction")


def test_texts_are_shown_in_the_direction_of_their_script(page: Page, url: str) -> None:
    """Arabic stands at the right, its marks and labels too; English stands at the left, on the same page."""
    request = json.loads((ROOT / "examples" / "multilingual.json").read_text(encoding="utf-8"))
    texts = [document["text"] for document in request["documents"]]
    page.ask("أي نهر يمر بمدينة فيينا؟", texts)
    check_highlights(page, texts, post(url, {"query": "أي نهر يمر بمدينة فيينا؟", "documents": texts, "return_blocks": True}))
    assert directions(page, "#query") == ["rtl"]
    assert directions(page, "#documents .text") == ["ltr", "rtl", "ltr", "ltr"]
    assert [directions(page, f"#result-{index} .text") for index in range(4)] == [["ltr"], ["rtl"], ["ltr"], ["ltr"]]
    assert directions(page, "#result-1 summary .name") == ["rtl"]
    assert page.run("return getComputedStyle(document.querySelector('#result-1 mark'), '::before').direction") == "ltr"
    right = """const place = (at) => document.querySelector(`#result-1 ${at}`).getBoundingClientRect();
        const [box, mark] = [place(".text"), place("mark")];
        return box.right - mark.right < mark.left - box.left;"""
    assert page.run(right)


def test_what_a_document_says_stays_text(page: Page, url: str) -> None:
    page.ask(HOSTILE_QUERY, HOSTILE)
    page.fill("#documents li:nth-child(1) .title", '"><script>window.hit = 6</script>')
    page.rank()
    documents = [{"title": '"><script>window.hit = 6</script>', "text": HOSTILE[0]}, *HOSTILE[1:]]
    check_highlights(page, HOSTILE, post(url, {"query": HOSTILE_QUERY, "documents": documents, "return_blocks": True}))
    assert page.all("#results script, #results img, #results b[onclick], #results svg[onload]") == []
    assert page.run("return window.hit") is None
    refused = "try { document.body.insertAdjacentHTML('beforeend', arguments[0]); return ''; } catch (error) { return error.name; }"
    assert page.run(refused, HOSTILE[0]) == "TypeError"
    page.driver.get_log("browser")  # it has complained about that, as it should


def test_the_sentence_that_answers_is_marked(page: Page) -> None:
    texts = [*NO_ANSWER, ODD[0][:40] + BEFORE + MARKUP + AFTER]
    page.ask(QUERY, texts)
    check_spans(page, texts)
    assert [text for text, _, _ in marks(page, ANSWERS)] == [MARKUP]
    block = page.run("return document.querySelector('mark.answer').parentElement.dataset.blocks")
    assert block == "0", "in the block that was read"
    assert page.run("return window.hit") is None
    page.fill("#model", UNDECLARED)
    page.ask(QUERY, DOCUMENTS)
    check_spans(page, DOCUMENTS)
    assert page.answer()["model"] == UNDECLARED


def test_blocks_that_were_read_and_spans_that_answer_look_different(page: Page) -> None:
    """A span over two blocks and the gap after them; the label stands where it begins."""
    blocks = [{"start": 4, "end": 6, "score": 1.5}, {"start": 2, "end": 4, "score": 0.5}]
    spans = [{"start": 3, "end": 7, "score": 0.9}]
    shown = "m.highlighted({ text: '01234567<b>', blocks: a[0], spans: a[1] }).map((node) => node.outerHTML ?? node)"
    answer = '<mark tabindex="-1" class="answer" title="This answers: score 0.9" data-spans="0"'
    assert page.module("highlights", shown, blocks, spans) == [
        "01",
        f'<mark tabindex="-1" class="" data-blocks="1" data-label="2 · 0.50">2{answer} data-label="answers 0.90">3</mark></mark>',
        f'<mark tabindex="-1" class="best" data-blocks="0" data-label="1 · 1.50">{answer}>45</mark></mark>',
        f"{answer}>6</mark>",
        "7<b>",
    ]


def test_a_line_stands_where_the_threshold_is_reached_no_more(page: Page) -> None:
    page.ask(QUERY, DOCUMENTS)
    order = [result["index"] for result in page.answer()["results"]]
    assert order[0] == ANSWERS
    assert layout(page) == [ANSWERS, f"below {THRESHOLD:.3f}: probably no answer", *order[1:]]
    assert [card.get_attribute("id") for card in page.all(".card.below")] == [f"result-{index}" for index in order[1:]]
    assert page.all(".nothing") == []
    page.ask(QUERY, DOCUMENTS[ANSWERS:])
    assert layout(page) == [0], "all reach it"
    page.ask(QUERY, NO_ANSWER)
    assert page.texts(".nothing") == [f"Nothing here answers this. No score reaches {THRESHOLD:.3f}."]
    assert len(page.all(".card.below")) == len(layout(page)) == len(NO_ANSWER), "the cards stay, and there is no line"
    assert page.texts("#status")[0].endswith("Nothing here answers this.")
    page.fill("#model", UNDECLARED)
    page.ask(QUERY, DOCUMENTS)
    assert page.all(".threshold, .nothing, .below") == []


def test_only_what_the_model_has_scored_is_judged(page: Page) -> None:
    """A bundle may answer with logits; the threshold is a probability all the same. A text of spaces answers nothing."""
    nobody = "Nothing that the model has scored answers this."
    probabilities = {"models": [{"model": "one", "answers": {"min_score": 0.5}}]}
    logits = {"answers": {"min_score": 0.5}, "pipeline": {"activation": {"name": "identity"}}}
    for info, scores, reached, first, nothing in (
        (probabilities, [(0.9, None), (0.2, None), (0.001, "selector")], [True, False, None], 1, None),
        (probabilities, [(0.9, None), (0.001, "selector")], [True, None], -1, None),
        (probabilities, [(0.5, None), (0.49, None)], [True, False], 1, None),
        (probabilities, [(0.2, None), (0.001, "selector")], [False, None], None, nobody),
        (probabilities, [(0.001, "selector"), (0.0, "order")], [], None, None),
        (probabilities, [], [], None, None),
        (logits, [(0.1, None), (-0.1, None), (-9, "order")], [True, False, False], 1, None),
    ):
        texts = [" " if by == "order" else "a" for _, by in scores]
        placed = [
            {"relevance_score": score, "text": text} | ({"scored_by": by} if by else {})
            for (score, by), text in zip(scores, texts, strict=True)
        ]
        verdict = page.module("threshold", "m.verdictOf(a[0], a[1], 'one')", placed, info)
        assert (verdict["reached"], verdict.get("first"), verdict.get("nothing")) == (reached, first, nothing)


def written(page: Page, part: str = "text") -> list[str]:
    """What stands in the boxes of the documents."""
    return page.each(f"#documents .{part}", "one.value")


def focused(page: Page) -> str:
    name = page.run(
        "const a = document.activeElement; return a.id || a.className.split(' ')[0] || a.tagName + ' ' + a.textContent.trim()"
    )
    visible = page.run(
        "const s = getComputedStyle(document.activeElement); return s.outlineStyle !== 'none' && s.outlineWidth !== '0px'"
    )
    assert visible, f"{name} has the focus, and nobody sees it"
    return str(name)


def test_by_the_keyboard_alone(page: Page, url: str) -> None:
    order = []
    while "query" not in order:
        page.press(Keys.TAB)
        order.append(focused(page))
    assert order == ["skip", "A API", "A Info", "query"]
    page.press("river bridge", *[Keys.TAB] * 3)
    assert focused(page) == "SUMMARY Options"
    while focused(page) != "text":
        page.press(Keys.TAB)
    page.press(FILLER, *[Keys.TAB] * 3)
    assert page.run("return document.activeElement.getAttribute('aria-label')") == "Text of document 2"
    page.press(FILLER * 2 + "The river bridge is closed. " + FILLER)
    page.press_with_control(Keys.ENTER)
    page.wait(lambda: page.all(".card"))
    assert focused(page) == "text"  # where one was
    assert [result["index"] for result in page.answer()["results"]] == [1, 0]
    while focused(page) != "block":
        page.press(Keys.TAB)
    page.press(Keys.ENTER)
    inside = """const [text, mark] = [document.querySelector("#result-1 .text"), document.querySelector("#result-1 mark.found")];
        const [box, found] = [text.getBoundingClientRect(), mark?.getBoundingClientRect()];
        return found && found.top >= box.top && found.top < box.bottom;"""
    page.wait(lambda: page.run(inside))
    page.run("document.querySelector('#result-1 summary').focus()")
    page.press(Keys.ENTER)
    page.wait(lambda: not page.run("return document.querySelector('#result-1 details').open"))


def test_every_control_has_a_name(page: Page) -> None:
    page.ask("river bridge", ODD)
    page.each("details", "one.open = true")
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = [
        node
        for node in nodes
        if node.get("role", {}).get("value") in ("button", "textbox", "spinbutton", "link", "combobox", "region")
    ]
    assert len(controls) > 20
    assert [node["role"]["value"] for node in controls if not node.get("name", {}).get("value", "").strip()] == []


def curl_copied(page: Page) -> str:
    grant = {"origin": page.url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.driver.execute_cdp_cmd("Browser.grantPermissions", grant)
    page.run("document.getElementById('curl').open = true")
    page.one("#curl .copy").click()
    page.wait(lambda: page.texts("#curl .copy") == ["Copied"])
    return str(page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))


def results(answer: Any) -> list[tuple[int, list[Any]]]:
    """The parts that are equal in two answers to one request; the last digits of scores may differ."""
    return [(result["index"], result["blocks"]) for result in answer["results"]]


def test_curl_pasted_into_a_shell_gives_the_same_answer(page: Page, tmp_path: Path) -> None:
    need("curl", "curl")
    page.fill("#max_tokens_per_doc", "112")
    page.ask(HOSTILE_QUERY, [*HOSTILE, *ODD, FILLER * 4000])  # the last alone is more than an argument may have
    command = curl_copied(page)
    finished = subprocess.run(["bash"], input=command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (finished.stderr, list(tmp_path.iterdir())) == ("", [])
    answer = json.loads(finished.stdout)
    assert results(answer) == results(page.answer())
    assert answer["meta"]["tokens_per_document"] == page.answer()["meta"]["tokens_per_document"] == 112


def test_a_key_is_sent_and_nowhere_kept(page: Page) -> None:
    page.fill("#key", "secret-0815")
    page.ask("river", ODD)
    assert {name.lower(): value for name, value in page.sent()["headers"].items()}["authorization"] == "Bearer secret-0815"
    assert "Authorization: Bearer $KEYBLOCK_API_KEY" in page.texts("#curl code")[0]
    assert "secret-0815" not in page.run("return document.body.textContent + JSON.stringify({...localStorage, ...sessionStorage})")
    page.driver.refresh()
    assert page.one("#key").get_property("value") == ""


def test_the_page_asks_for_a_key_where_one_is_needed(driver: Chrome, bundle_path: Path) -> None:
    rank, metrics = make("page", ["rank"]), make("prometheus", ["metrics"])
    with served(rank, metrics, bundles=[bundle_path]) as url:
        page = Page(driver, url)
        page.open()
        assert page.texts("#problem, #serving") == ["", ""], "that /info needs a key too is nothing to complain of"
        page.one("#try").click()
        page.wait(lambda: page.one("#problem").is_displayed())
        assert page.texts("#problem")[0].startswith("401: an API key is needed")
        assert focused(page) == "key"
        page.press(metrics.secret)
        page.press_with_control(Keys.ENTER)
        page.wait(lambda: page.texts("#problem")[0].startswith("403: the API key 'prometheus' may not do this"))
        page.one("#key").clear()
        page.one("#key").send_keys(rank.secret)
        page.press_with_control(Keys.ENTER)
        page.wait(lambda: page.all(".card"))
        assert not page.one("#problem").is_displayed()
        assert len(page.all(".card")) == len(SAMPLE["documents"])
        page.press(Keys.TAB)
        page.wait(lambda: "tiny" in page.texts("#serving")[0])


def marked(page: Page) -> tuple[str, str]:
    """The field that has the problem and the focus, and what stands under it."""
    (problem,) = page.texts(".field-problem")
    under = page.run("return document.querySelector('.field-problem').previousElementSibling === document.activeElement")
    assert under, problem
    assert page.run("return document.activeElement.getAttribute('aria-invalid')") == "true"
    return str(page.run("return document.activeElement.id || document.activeElement.getAttribute('aria-label')")), problem


def test_a_problem_stands_at_its_field(page: Page) -> None:
    page.ask("", ["a river"])
    field, problem = marked(page)
    assert (field, page.texts("#problem")) == ("query", [f"422: {problem}"])
    page.fill("#query", "river")
    page.fill("#top_n", "-1")
    page.rank()
    field, problem = marked(page)
    assert (field, problem.split(":")[0], page.one("#top_n").is_displayed()) == ("top_n", "top_n", True)
    page.one("#top_n").clear()
    page.one("#top_n").send_keys("e")
    page.rank()
    assert (marked(page), page.texts("#problem")) == (("top_n", "top_n: not a number"), ["top_n: not a number"])
    page.one("#top_n").clear()
    page.fill("#key", "schlüssel")
    page.rank()
    assert marked(page) == ("key", "API key: it has a character that a header cannot carry")
    page.fill("#key", "")
    page.press_on("#add")
    page.press_on("#add")
    page.run("document.querySelector('#documents li:nth-child(3) .text').value = 'x'.repeat(4000001)")
    page.rank()
    field, problem = marked(page)
    assert (field, problem.split(":")[0]) == ("Text of document 3", "documents[1].text"), "the empty box before it was not sent"
    page.press_on("#documents li:nth-child(3) .remove")
    page.rank()
    assert page.all(".field-problem, [aria-invalid]") == []


def test_a_service_that_is_away_is_reported_with_what_to_try(page: Page) -> None:
    away: dict[str, Any] = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", away)
    try:
        page.ask("river", ["a river"])
        read = page.module("files", "m.readFiles([new File(['%PDF-'], 'a.pdf')], '')")
    finally:
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", away | {"offline": False})
    (problem,) = page.texts("#problem")
    assert problem.startswith(f"The service at {page.url.rstrip('/')} cannot be reached (")
    assert "make serve" in problem
    assert read["problems"] == [f"a.pdf: {problem}"]
    assert written(page) == ["a river"]


def test_the_page_says_what_a_deadline_cost(page: Page) -> None:
    page.fill("#deadline_ms", "0")
    page.ask("river bridge", ODD)
    answer = page.answer()
    assert answer["meta"]["degraded"]
    assert page.texts(".notice.degraded li") == answer["meta"]["warnings"]
    assert {result["scored_by"] for result in answer["results"]} <= {"order", "selector"}
    assert len(page.all(".card .by")) == 3
    assert "0 ms" in page.texts("#chosen")[0]


def test_options_are_sent(page: Page) -> None:
    options: dict[str, Any] = {"max_tokens_per_doc": 9999, "top_n": 2, "model": UNDECLARED}
    for name, value in options.items():
        page.fill(f"#{name}", str(value))
    page.ask("river bridge", ODD)
    answer = page.answer()
    assert len(answer["results"]) == len(page.all(".card")) == 2
    assert page.texts(".notice.warn li") == answer["meta"]["warnings"] != []
    assert options.items() <= json.loads(page.sent()["postData"]).items()


def test_documents_come_from_files(page: Page, tmp_path: Path) -> None:
    lines = [{"id": 7, "title": "Bridges", "text": ODD[0]}, "a river", {"no": "text"}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{cut\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text(ODD[1], encoding="utf-8")
    (tmp_path / "request.json").write_text(json.dumps({"query": "river", "documents": ["stone"]}), encoding="utf-8")
    page.one("#files").send_keys("\n".join(str(path) for path in sorted(tmp_path.iterdir())))
    page.wait(lambda: page.texts("#count") == ["4"])
    assert page.texts("#file-problems") == ["b.jsonl: line 3, 4 is no document in JSON"]
    page.rank()
    sent = json.loads(page.sent()["postData"])
    assert sent["query"] == "river"
    first = {"id": "a.txt", "title": "a.txt", "text": ODD[1]}
    assert sent["documents"] == [first, lines[0], {"text": "a river"}, {"text": "stone"}]


def test_the_text_of_other_files_is_found_by_the_service(page: Page, tmp_path: Path) -> None:
    files = {
        "0.txt": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。".encode("shift_jis"),
        "a & b.pdf": pdf([["The river rises."], ["It falls."]]),
        "b.docx": word(paragraph("Rivers", "Heading1"), paragraph("It rises.")),
        "c.epub": epub({"a.xhtml": "<p>It rose.</p>"}, "A book"),
        "d.html": b"<title>A page</title><h1>Rivers</h1>It <b>rises</b>.<script>window.hit = 1</script>",
        "e.html": b"<div>A piece &lt;of&gt; a page</div>",
        "f.zip": archive({"a.txt": "Wien"}),
        "g.txt": b"\xef\xbb\xbfa text",
        "h.md": b"<p align=center>A readme</p>",
        "i.bin": b"\x7fELF\0\0",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    page.one("#files").send_keys("\n".join(str(path) for path in sorted(tmp_path.iterdir())))
    page.wait(lambda: page.one("#file-problems").is_displayed())
    texts = [
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
        "The river rises.\fIt falls.",
        "# Rivers\n\nIt rises.",
        "It rose.",
        "# Rivers\n\nIt rises.",
        "A piece <of> a page",
        "a text",
        "<p align=center>A readme</p>",
    ]
    assert written(page) == texts
    assert written(page, "title") == ["0.txt", "a & b.pdf", "b.docx", "A book", "A page", "e.html", "g.txt", "h.md"]
    guess, *refused = page.texts("#file-problems")[0].splitlines()
    assert guess.startswith("0.txt: is not UTF-8; read as cp932, which is a guess")
    assert refused == [
        "f.zip: is a ZIP archive, skipped: unpack it and give what is in it",
        "i.bin: is binary, skipped: give a text",
    ]


def test_files_can_be_dropped(page: Page) -> None:
    drop = """const data = new DataTransfer();
        data.items.add(new File(["the river"], "one.txt"));
        data.items.add(new File(['{"text": "a bridge"}'], "two.jsonl"));
        document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));"""
    page.run(drop)
    page.wait(lambda: page.texts("#count") == ["2"])
    assert written(page) == ["the river", "a bridge"]


def test_a_line_may_have_more_documents_than_a_call_has_arguments(page: Page) -> None:
    read = """const done = arguments[0], line = JSON.stringify({documents: Array(200000).fill("a river")});
        import("./playground/files.js").then(({readFiles}) => readFiles([new File([line], "many.jsonl")]))
            .then((all) => done([all.documents.length, all.problems]), (error) => done(String(error)));"""
    assert page.driver.execute_async_script(read) == [200_000, []]


def test_documents_are_added_and_removed(page: Page) -> None:
    page.ask("river", ["one", "two", "three"])
    page.all("#documents .remove")[1].click()
    assert written(page) == ["one", "three"]
    assert focused(page) == "text"
    page.rank()
    assert len(page.all(".card")) == 2


def test_a_document_of_megabytes_leaves_the_page_quick(page: Page, url: str) -> None:
    long = FILLER * 12_000 + "The river bridge is closed. " + FILLER * 12_000
    page.ask("river bridge", [long])
    pieces = page.pieces(0)
    assert sum(len(piece) for piece, _, _ in pieces) < 100_000
    assert any("characters not shown" in piece for piece, _, _ in pieces)
    blocks = post(url, {"query": "river bridge", "documents": [long], "return_blocks": True})["results"][0]["blocks"]
    assert next(piece for piece, over, _ in pieces if over == "0") == long[blocks[0]["start"] : blocks[0]["end"]]


def test_nothing_sticks_out_on_a_phone(page: Page) -> None:
    phone: dict[str, Any] = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        place = "const box = document.getElementById(arguments[0]).getBoundingClientRect(); return [box.top, box.bottom]"
        tried, query, rank = (page.run(place, name) for name in ("try", "query", "rank"))
        assert 0 < tried[1] < query[0] < rank[1] < phone["height"], "what to press first comes first, and the rest is in sight"
        page.one("#try").click()
        page.wait(lambda: page.all(".card"))
        assert page.run(place, "query")[0] < page.run(place, "answer")[0]
        assert page.run("return document.documentElement.scrollWidth") == 390
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
