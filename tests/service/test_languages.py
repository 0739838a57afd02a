"""What the service answers when the texts are in a script that the embedded model has not learned."""

from collections.abc import Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

CHINESE = ["会议持续了很长时间。", "多瑙河流经维也纳和布达佩斯。", "泰晤士河流经伦敦。"]
ARABIC = ["استمر الاجتماع وقتا طويلا.", "يمر نهر الدانوب بمدينة فيينا وبودابست.", "يمر نهر التايمز بمدينة لندن."]
ENGLISH = [
    "The meeting lasted for a long time.",
    "The Danube flows through Vienna and Budapest.",
    "The Thames flows through London.",
]
ASKED = {"zh": "哪条河流经维也纳?", "ar": "أي نهر يمر بمدينة فيينا؟", "en": "Which river flows through Vienna?"}


@pytest.fixture(scope="module")
def client(embedded: TestClient) -> TestClient:
    return embedded


def ask(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def about_scripts(answer: Any) -> list[str]:
    return [warning for warning in answer["meta"]["warnings"] if "script" in warning]


@pytest.mark.parametrize(("language", "texts"), [("zh", CHINESE), ("ar", ARABIC)])
def test_texts_in_another_script_are_ordered_by_their_blocks_beside_the_order_given(
    client: TestClient, language: str, texts: list[str]
) -> None:
    """The second document names Vienna; the third, the last one given, has a river that flows; the first shares nothing."""
    answer = ask(client, "/rerank", query=ASKED[language], documents=texts, return_blocks=True)
    assert [result["index"] for result in answer["results"]] == [1, 2, 0]
    assert {result["scored_by"] for result in answer["results"]} == {"selector"}
    assert all(result["blocks"] for result in answer["results"])
    assert not answer["meta"]["degraded"]
    (warning,) = about_scripts(answer)
    assert warning.startswith("model: it has learned texts in latin script, and 3 of 3 documents, or the query, are in another: ")


def test_texts_that_share_no_word_with_the_query_stay_in_the_order_given(client: TestClient) -> None:
    answer = ask(client, "/rerank", query="什么是泵的压力", documents=CHINESE[1:] + ENGLISH)
    assert [result["index"] for result in answer["results"]] == [0, 1, 2, 3, 4]
    assert {(result["scored_by"], result["relevance_score"]) for result in answer["results"]} == {("order", 0.0)}


def test_the_block_that_answers_is_still_found_in_another_script(client: TestClient) -> None:
    """The sentence about Vienna stands in the middle of others, and is more than the model reads from the top."""
    text = CHINESE[0] * 30 + CHINESE[1] + CHINESE[2] * 30
    answer = ask(client, "/rerank", query=ASKED["zh"], documents=[text, CHINESE[0] * 60], return_blocks=True)
    best = answer["results"][0]["blocks"][0]
    assert CHINESE[1] in text[best["start"] : best["end"]]


def test_a_query_in_another_script_moves_nothing(client: TestClient) -> None:
    answer = ask(client, "/rerank", query=ASKED["zh"], documents=ENGLISH)
    assert [result["index"] for result in answer["results"]] == [0, 1, 2]
    assert about_scripts(answer)


def test_a_few_documents_in_another_script_are_counted_and_the_model_orders_all(client: TestClient) -> None:
    answer = ask(client, "/rerank", query=ASKED["en"], documents=[CHINESE[0], *ENGLISH, "1999"])
    assert answer["results"][0]["index"] == 2
    assert not any("scored_by" in result for result in answer["results"])
    (warning,) = about_scripts(answer)
    assert "1 of 5 documents" in warning
    assert warning.endswith("their scores mean little")


def test_another_language_in_a_learned_script_gets_a_warning(client: TestClient) -> None:
    """The fourth document alone says when; nothing but the words of its own language says so."""
    about = "Die Stadt liegt am Fluss, und ihre Brücken wurden im Laufe der Jahrhunderte mehrmals erneuert und erweitert. "
    answer = "Die steinerne Brücke wurde nach dem Hochwasser von 1732 abgerissen und durch eine hölzerne Brücke ersetzt. "
    texts = [about * 2 + "Der Markt ist dienstags. ", about * 3, about + "Die Kirche ist alt. ", about * 2 + answer]
    found = ask(client, "/rerank", query="Wann wurde die steinerne Brücke abgerissen?", documents=texts)
    assert found["results"][0]["index"] == 3
    assert not any("scored_by" in result for result in found["results"])
    (warning,) = [warning for warning in found["meta"]["warnings"] if "language" in warning]
    assert "most words of 4 of 4 documents are of no language that it knows" in warning


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        (ASKED["en"], ENGLISH),
        ("What is π times 2?", ["π is about 3.14159.", "The 東京 tower is 333 m high.", "😀 αβγ and more words in English"]),
        ("Welcher Fluss fließt durch Wien?", ["Die Themse fließt durch London.", "Die Donau fließt durch Wien."]),
    ],
)
def test_latin_texts_are_ordered_by_the_model(client: TestClient, query: str, texts: Sequence[str]) -> None:
    answer = ask(client, "/rerank", query=query, documents=texts)
    assert not any("scored_by" in result for result in answer["results"])
    assert not about_scripts(answer)


@pytest.mark.parametrize(("language", "texts"), [("zh", CHINESE), ("ar", ARABIC)])
def test_the_other_dialects_give_the_same_order(client: TestClient, language: str, texts: list[str]) -> None:
    query = ASKED[language]
    cohere = ask(client, "/v2/rerank", model="keyb-hybrid-minilm-l6", query=query, documents=texts, top_n=2)
    jina = ask(client, "/v1/rerank", query=query, documents=[{"text": text} for text in texts], return_documents=True)
    tei = ask(client, "/rerank", query=query, texts=texts, return_text=True)
    raw = ask(client, "/rerank", query=query, texts=texts, raw_scores=True)
    assert [one["index"] for one in cohere["results"]] == [1, 2]
    assert [(one["index"], one["document"]["text"]) for one in jina["results"]] == [(n, texts[n]) for n in (1, 2, 0)]
    assert [(one["index"], one["text"]) for one in tei] == [(n, texts[n]) for n in (1, 2, 0)]
    scores = [one["score"] for one in tei]
    assert 0.01 > scores[0] > scores[1] > scores[2] > 0, "who sorts by scores gets the same order"
    assert [one["index"] for one in raw] == [1, 2, 0]
