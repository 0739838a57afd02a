"""What the embedded bundle answers, in cases whose right answer a person can see."""

import base64
import json
import re
from random import Random
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.conftest import ROOT
from tests.service.conftest import rerank

REQUEST: dict[str, Any] = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
LEASE = REQUEST["documents"][2]["text"]
RIGHT = "two months' notice is enough"
Q = "How long is the notice period for the flat?"
A = "The notice period for the flat is three months."
NAMES = ("use/http-api.md", "use/documents-by-id.md", "use/spans-and-pruning.md", "run/configure.md")
PAGES = "\n".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in NAMES)
NOTHING = "Who painted the ceiling of the Sistine Chapel?"


@pytest.fixture(scope="module")
def client(embedded: TestClient) -> TestClient:
    return embedded


def ask(client: TestClient, **options: Any) -> dict[str, Any]:
    return rerank(client, **REQUEST | options)


def test_the_request_of_the_readme_is_answered_as_it_says(client: TestClient) -> None:
    answer = ask(client)
    assert [result["id"] for result in answer["results"]] == ["lease", "advice-column", "gym"]
    assert answer["results"][0]["relevance_score"] == pytest.approx(0.428, abs=0.02)
    assert answer["meta"]["warnings"] == []


def test_the_example_of_the_pages_is_served_as_shown(client: TestClient) -> None:
    request = json.loads(PAGES.split("-d '")[1].split("'\n```")[0])
    shown = json.loads(PAGES.split("```json\n")[1].split("```")[0])
    answer = client.post("/rerank", json=request).json()
    assert _shape(answer) == _shape(shown)
    assert [_numbers(result) for result in answer["results"]] == [
        pytest.approx(_numbers(result), abs=0.03) for result in shown["results"]
    ]


def _numbers(result: dict[str, Any]) -> list[float]:
    return [result["relevance_score"], *(value for block in result["blocks"] for value in block.values())]


def _shape(value: Any) -> Any:
    """Keys all the way down; of a list the union of its elements' keys."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted({key for inner in value if isinstance(inner, dict) for key in inner})
    return None


def test_the_best_span_is_the_sentence_that_answers(client: TestClient) -> None:
    best = ask(client, relevant_spans={"mode": "enabled"})["results"][0]
    span = best["relevant_spans"][0]
    found = LEASE[span["start"] : span["end"]]
    assert best["id"] == "lease"
    assert RIGHT in found
    assert found.startswith("After the first twelve months"), "cut where a sentence begins"
    assert found.endswith("the third working day of a month."), "and where it ends"
    assert span["score"] > 0.4  # as the bundle's calibration on twelve collections has it


def test_the_same_again_has_the_same_spans_without_the_model(client: TestClient) -> None:
    def fed() -> str:
        return next(line for line in client.get("/metrics").text.splitlines() if line.startswith("keyblock_tokens_total"))

    request = {"relevant_spans": {"mode": "enabled"}, "prune": True, "max_tokens_per_doc": 150}
    first, before = ask(client, **request), fed()
    assert ask(client, **request)["results"] == first["results"]
    assert fed() == before


def test_documents_that_only_talk_of_tenants_are_left_out(client: TestClient) -> None:
    answer = ask(client, min_score="auto")
    assert [result["id"] for result in answer["results"]] == ["lease"]
    assert answer["meta"]["below_min_score"] == 2
    assert answer["meta"]["best_below_min_score"] < answer["meta"]["min_score"] <= answer["results"][0]["relevance_score"]


def test_nothing_answers_a_question_about_something_else(client: TestClient) -> None:
    def emptied() -> float:
        found = re.search(r"^keyblock_emptied_answers_total{.*} (.*)$", client.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    before = emptied()
    answer = ask(client, query=NOTHING, min_score="auto", relevant_spans={"mode": "enabled"}, prune=True)
    assert answer["results"] == []
    assert answer["meta"]["below_min_score"] == 3
    assert emptied() == before + 1
    assert len(ask(client, min_score="auto")["results"]) == 1
    assert emptied() == before + 1, "an answer with a result is not empty"


def test_what_is_passed_on_holds_the_answer_and_little_else(client: TestClient) -> None:
    answer = ask(client, prune=True, max_context_tokens=60)
    texts = {result["id"]: result["context"]["text"] for result in answer["results"] if "context" in result}
    assert RIGHT in texts["lease"]
    assert answer["meta"]["context"]["tokens"] <= 60
    assert answer["meta"]["context"]["saved"] > 800


def test_a_sentence_that_many_documents_have_is_passed_on_once(client: TestClient) -> None:
    other = "Leaving earlier needs a successor; then one month is enough."
    answer = ask(client, query=Q, documents=[A, A, A, other], top_n=4, prune=True, max_context_tokens=40)
    assert sorted(one["context"]["text"] for one in answer["results"] if "context" in one) == sorted([A, other])
    assert answer["meta"]["context"]["copies"] == 2


def test_with_diversity_a_copy_gives_way_to_a_different_answer(client: TestClient) -> None:
    other = "Leaving the flat earlier, before the notice period ends, needs a successor; then one month is enough."
    documents = [A, A, other]
    plain, diverse = (ask(client, query=Q, documents=documents, diversity=diversity) for diversity in (None, 0.5))
    assert [one["index"] for one in plain["results"]] == [0, 1, 2]
    assert [one["index"] for one in diverse["results"]] == [0, 2, 1]
    of_plain, of_diverse = ({one["index"]: one["relevance_score"] for one in each["results"]} for each in (plain, diverse))
    assert of_diverse == of_plain, "scores stay as they are"
    assert [one["index"] for one in ask(client, query=Q, documents=documents, diversity=0.5, top_n=2)["results"]] == [0, 2]


def test_diversity_and_a_fusion_do_not_go_together(client: TestClient) -> None:
    answer = ask(client, diversity=0.5, first_stage_scores=[1, 2, 3], fusion="mapfuse")
    assert "diversity: left out, since a fusion with the first stage orders the results" in answer["meta"]["warnings"]
    assert [one["fused_score"] for one in answer["results"]] == sorted(
        (one["fused_score"] for one in answer["results"]), reverse=True
    )


def test_neither_a_limit_nor_what_is_shown_changes_what_there_is_to_pass_on(client: TestClient) -> None:
    def contexts(most: int | None = None, **options: Any) -> list[Any]:
        asked = {"mode": "enabled", "threshold": 0.05, "max_spans": most}
        return [one.get("context") for one in ask(client, prune=True, relevant_spans=asked, **options)["results"]]

    assert contexts() == contexts(most=1) == contexts(max_context_tokens=10_000)


BLOB = base64.b64encode(Random(1).randbytes(36_000)).decode()


@pytest.mark.parametrize("before", [f"![scan](data:image/png;base64,{BLOB}) ", f"{BLOB}\n"], ids=["in a line", "on a line"])
def test_text_that_is_no_language_changes_nothing(client: TestClient, before: str) -> None:
    asked = {"query": Q, "relevant_spans": {"mode": "enabled"}, "prune": True, "max_context_tokens": 60, "return_blocks": True}
    (plain,) = ask(client, documents=[A], **asked)["results"]
    (found,) = ask(client, documents=[before + A], **asked)["results"]
    assert found["relevance_score"] == pytest.approx(plain["relevance_score"], abs=0.02)
    assert found["context"]["text"] == A
    for part in (*found["relevant_spans"], *found["blocks"], *found["context"]["parts"]):
        assert (before + A)[part["start"] : part["end"]] == A
    (alone,) = ask(client, documents=[BLOB], **asked)["results"]
    assert alone["relevance_score"] == 0


def test_a_context_counts_its_characters(client: TestClient) -> None:
    """A word of 120 letters is one token of the model."""
    text = " and ".join("".join(Random(n).choices("abcdefgh", k=120)) for n in range(9)) + ", so the notice period is three months."
    answer = ask(client, query=Q, documents=[text], prune=True)
    assert answer["meta"]["context"]["tokens"] == answer["results"][0]["context"]["tokens"] == len(text) // 16
    answer = ask(client, query=Q, documents=[text], prune=True, max_context_tokens=60)
    assert answer["meta"]["context"]["tokens"] == 0


@pytest.mark.parametrize("space", ["\u200b", "\u2060", "\ufeff"])
def test_zero_width_spaces_part_words(client: TestClient, space: str) -> None:
    plain, found = (ask(client, query=Q, documents=[text])["results"][0] for text in (A, A.replace(" ", space)))
    assert found["relevance_score"] == plain["relevance_score"]


def test_soft_hyphens_and_wide_letters_are_read_and_letters_apart_are_warned_of(client: TestClient) -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if c.strip() else "\u3000" for c in A)
    soft = A.replace("notice", "no\u00adtice").replace("months", "mon\u00adths")
    answer = ask(
        client, query=Q, documents=[A, wide, soft, A.replace("notice", "n o t i c e"), "a b", "I I I w I I went."], top_n=0
    )
    scores = {one["index"]: one["relevance_score"] for one in answer["results"]}
    assert scores[0] == scores[1] == scores[2] > scores[3]
    (warning,) = (one for one in answer["meta"]["warnings"] if "apart" in one)
    assert warning.endswith("join them: 3")


def test_info_says_what_the_scores_are_worth(client: TestClient) -> None:
    answers = client.get("/info").json()["answers"]
    assert answers["marks_spans"]
    assert answers["min_score"] == answers["threshold"]["score"]
    seen, domains = (
        {"squad-far", "squad-articles", "qmsum", "evidence"},
        "business cloud mail-office medicine policies pubmed work yesno",
    )
    assert seen | set(domains.split()) == answers["reliability"].keys() == answers["spans"].keys()
