"""The whole service over HTTP: bad input one by one, odd documents, shared batches, the OpenAPI document."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import DocumentLine, ErrorBody, Options, RerankAnswer
from service.app import JOINED_PATHS, RERANK_PATHS
from service.http.examples import EXAMPLES
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.rankers import sample

GOOD: dict[str, Any] = {"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}
ANSWER = TypeAdapter(RerankAnswer)
ERROR = TypeAdapter(ErrorBody)
TEXT = st.text(st.characters(codec=None), max_size=300) | st.lists(
    st.sampled_from(
        ["river ", "bridge. ", "\x00", "\ud800", "😀👨‍👩‍👧", "مرحبا ", "東京都。", "e\u0301", "\u202e", "\n", "x" * 50, "[SEP]"]
    ),
    max_size=200,
).map("".join)


def serves_a_good_request(client: TestClient) -> bool:
    response = client.post("/rerank", json=GOOD)
    return response.status_code == 200 and [r["index"] for r in response.json()["results"]] == [0, 1]


def ask(client: TestClient, **fields: object) -> RerankAnswer:
    """An answer to a request that is not an error; surrogates travel as escapes."""
    response = client.post("/rerank", content=json.dumps(GOOD | fields).encode())
    assert response.status_code == 200, response.text
    return ANSWER.validate_json(response.content)


def test_bodies_at_the_limits_are_served(client: TestClient, settings: Settings) -> None:
    body = json.dumps(GOOD).encode().ljust(settings.max_body_bytes)
    assert client.post("/rerank", content=body).status_code == 200
    assert len(ask(client, documents=["a"] * settings.max_documents)["results"]) == settings.max_documents


def test_content_type_and_credentials_are_not_insisted_upon(client: TestClient) -> None:
    for headers in (
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded", "authorization": "token"},
        {},
    ):
        assert client.post("/rerank", content=json.dumps(GOOD).encode(), headers=headers).status_code == 200


def test_null_options_and_any_model_are_not_errors(client: TestClient) -> None:
    plain = ask(client)
    answer = ask(client, **{**dict.fromkeys([*Options.model_fields, "texts", "overlap"]), "model": "no-such-model"})
    assert answer["meta"]["warnings"] == []
    assert answer["results"] == plain["results"]


WORDLESS = ["", " \n\t ", "\x00\x00", "\u200b\u00ad", LONE := "\ud83d", "x" * 2_000_000]
ODD = {
    "no letters": "!!! ??? ... --- 12345 +++",
    "emoji": "😀👨‍👩‍👧🏳️‍🌈 river 😀" * 30,
    "right to left": "النهر غمر الجسر. \u202eriver\u202c " * 30,
    "CJK": "東京都は日本の首都です。隅田川が流れている。" * 60,
    "NUL inside": "the river\x00 flooded\x00the bridge " * 50,
    "lone surrogates": ("the river " + LONE + " flooded \udc00") * 50,
    "combining": ("e\u0301" * 20 + " ") * 100,
    "special tokens": "[CLS] [SEP] [PAD] [MASK] river [SEP]" * 20,
    "2 MB without punctuation": "river bridge flood " * 110_000,
    "2 MB of CJK without spaces": "川" * 700_000,
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_documents_are_scored_with_valid_offsets(client: TestClient, text: str) -> None:
    answer = ask(client, documents=["a city", text], return_blocks=True)
    (result,) = (r for r in answer["results"] if r["index"] == 1)
    warnings = answer["meta"]["warnings"]
    assert all(warning.startswith("query: nothing in the documents stands out") for warning in warnings)
    assert len(warnings) <= (result.get("selected_by") == "position")
    assert "scored_by" not in result
    assert result["blocks"]
    assert all(0 <= block["start"] < block["end"] <= len(text) for block in result["blocks"])
    assert serves_a_good_request(client)


@pytest.mark.parametrize("text", WORDLESS, ids=["empty", "spaces", "NUL", "invisible", "half a character", "a word of 2 MB"])
def test_documents_with_nothing_to_score_rank_last_with_a_warning(client: TestClient, text: str) -> None:
    answer = ask(client, documents=[text, "a city", {"text": text, "title": "river bridge"}], return_blocks=True)
    assert [r["index"] for r in answer["results"]] == [1, 0, 2]
    for result in answer["results"][1:]:
        assert (result["relevance_score"], result["scored_by"], result["blocks"]) == (0.0, "order", [])
    assert answer["meta"]["warnings"] == ["documents without text to score, ranked last: 0, 2"]
    assert serves_a_good_request(client)


QUIET = "The winter garden was quiet that morning. " * 60


def test_blocks_that_were_chosen_without_evidence_are_reported_and_counted(client: TestClient, ranker: Ranker) -> None:
    """The first names the river at its end, the second nowhere, the third is read whole, the fourth has nothing to read."""

    def counted() -> list[float]:
        return [sample(ranker, "selected", by=by, model="tiny") for by in ("evidence", "position", "model")]

    before = counted()
    documents = [QUIET + "The river flooded.", QUIET, "A quiet city.", ""]
    answer = ask(client, query="river", documents=documents, return_blocks=True)
    results = {result["index"]: result for result in answer["results"]}
    assert [results[number].get("selected_by") for number in range(4)] == ["evidence", "position", None, None]
    assert results[0]["blocks"][0]["end"] == len(documents[0])
    assert results[1]["blocks"][0]["start"] == 0
    assert answer["meta"]["warnings"] == ["documents without text to score, ranked last: 3"]
    assert [after - earlier for after, earlier in zip(counted(), before, strict=True)] == [1, 1, 0]


def test_documents_without_evidence_that_read_alike_keep_the_order_given(client: TestClient) -> None:
    """They differ only where the model does not read, so nothing may speak for one of them."""
    documents = [QUIET + tail for tail in ("A zebra slept.", "A tiger woke.", "A whale sang.")]
    results = ask(client, query="river", documents=documents)["results"]
    assert [result["index"] for result in results] == [0, 1, 2]
    assert len({result["relevance_score"] for result in results}) == 1


def test_duplicates_get_the_same_score_in_the_order_given(client: TestClient) -> None:
    answer = ask(client, documents=["a city", "the river", "a city", "the river"])
    order = [r["index"] for r in answer["results"]]
    assert order in ([1, 3, 0, 2], [0, 2, 1, 3])
    scores = [r["relevance_score"] for r in answer["results"]]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


@hypothesis_settings(max_examples=60)
@given(st.lists(TEXT, min_size=1, max_size=6), TEXT)
def test_any_text_is_ranked_with_valid_offsets(client: TestClient, texts: list[str], query: str) -> None:
    """Whatever the text, every document comes back once, and each block names a stretch of the text as sent."""
    answer = ask(client, query="river " + query, documents=texts, return_blocks=True, return_documents=True)
    assert sorted(r["index"] for r in answer["results"]) == list(range(len(texts)))
    for result in answer["results"]:
        text = texts[result["index"]]
        sent_back = result["document"]["text"]
        assert sent_back == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in json.loads(json.dumps(text)))
        spans = sorted((block["start"], block["end"]) for block in result["blocks"])
        assert all(0 <= start < end <= len(sent_back) for start, end in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        assert bool(spans) != ("scored_by" in result)


def test_what_is_not_served_is_answered_with_what_is_in_the_shape_of_all_errors(client: TestClient) -> None:
    for response, status, said in (
        (client.post("/rank", json=GOOD), 404, "there is no POST '/rank' here: POST /rerank ranks, and GET /docs shows all paths"),
        (client.get("/rerank"), 405, "GET '/rerank' is not served: this path takes POST"),
        (client.get("/" + "x" * 5000), 404, "there is no GET '/xxx"),
    ):
        assert response.status_code == status
        body = ERROR.validate_json(response.content)
        assert body["error"]["code"] == status
        assert body["message"].startswith(said)
        assert len(body["message"]) < 250
    assert client.get("/rerank").headers["allow"] == "POST"
    assert client.post("/documents/7").headers["allow"] == "DELETE, GET", "of all routes of the path"


def test_openapi_shows_both_requests_with_an_example_of_each_dialect(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert [s["$ref"].rsplit("/", 1)[1] for s in content["schema"]["anyOf"]] == [
            "RerankRequest",
            "QueriesRequest",
            "TeiRequest",
            "VoyageRequest",
        ]
        assert {name: shown["value"] for name, shown in content["examples"].items()} == {
            name: example.request for name, example in EXAMPLES.items()
        }
    schemas = document["components"]["schemas"]
    assert set(schemas["RerankRequest"]["properties"]) == {"query", "documents", *Options.model_fields}
    assert all("description" in field for field in schemas["RerankRequest"]["properties"].values())
    lines = document["paths"]["/documents"]["put"]["requestBody"]["content"]["application/x-ndjson"]
    assert all(DocumentLine.model_validate_json(line) for line in lines["example"].splitlines())
    assert set(document["paths"]["/documents/{id}"]) == {"get", "delete"}
    assert not _dangling(document)
    assert client.get("/docs").status_code == 200


def _dangling(document: dict[str, Any]) -> set[str]:
    """References to schemas that are not there."""
    text = json.dumps(document)
    named = {part.split('"', 1)[0] for part in text.split("#/components/schemas/")[1:]}
    return named - set(document["components"]["schemas"])


def test_a_trailing_slash_is_served_not_redirected(client: TestClient) -> None:
    for path in (f"{path}/" for path in RERANK_PATHS):
        assert client.post(path, json=GOOD, follow_redirects=False).status_code == 200


@pytest.mark.parametrize(("path", "version"), list(zip(JOINED_PATHS, ("1", "2"), strict=True)))
def test_a_base_with_v1_and_a_client_that_adds_the_version(client: TestClient, path: str, version: str) -> None:
    answer = client.post(path, json=GOOD).json()
    assert answer["meta"]["api_version"] == {"version": version}
    assert path not in client.get("/openapi.json").json()["paths"]


def test_litellm_is_sent_no_documents_outside_v2(client: TestClient) -> None:
    """It reads those of Infinity and those of vLLM in shapes that contradict each other, and sends the same request."""
    headers = {"user-agent": "litellm/1.105.3"}
    answers = {path: client.post(path, json=GOOD | {"return_documents": True}, headers=headers).json() for path in RERANK_PATHS}
    sent = {path: ["document" in result for result in answer["results"]] for path, answer in answers.items()}
    assert sent == {"/rerank": [False, False], "/v1/rerank": [False, False], "/v2/rerank": [True, True]}
    assert answers["/rerank"]["meta"]["warnings"][0].startswith("return_documents: litellm")
    texts = client.post("/rerank", json={"query": "river", "texts": ["a river"], "return_text": True}, headers=headers).json()
    assert texts[0]["text"] == "a river"


def test_a_huge_title_costs_no_more_than_what_is_read_of_it(client: TestClient) -> None:
    head = "The river and the bridge " * 100
    long, short = ({"title": head + "x " * n, "text": "a river"} for n in (500_000, 0))
    first, second = ask(client, documents=[long, short])["results"]
    assert first["relevance_score"] == second["relevance_score"]
