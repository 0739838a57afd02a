import pytest
from starlette.testclient import TestClient

from service.http.dialects.fields import with_text_of

SONG = {"id": 7, "title": "River", "text": "I wish", "author": "Joni", "year": 1971}


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (["text"], ("I wish", None)),
        (["title", "text"], ("I wish", "River")),
        (["author", "text", "title"], ("Joni\nI wish", "River")),
        (["title"], ("River", None)),
        (["author", "publisher"], ("Joni", None)),
        (["publisher", "year"], ("I wish", "River")),
    ],
)
def test_the_text_is_made_of_the_fields(fields: list[str], read: tuple[str, str | None]) -> None:
    found = with_text_of(SONG, fields)
    assert (found["text"], found["title"]) == read
    assert (found["id"], found["year"]) == (7, 1971)
    assert ("author" in found) == ("author" not in fields)


def test_over_http(client: TestClient) -> None:
    documents = [
        {"body": "the river flooded the bridge", "seen": "often"},
        {"text": "a city", "body": "a hill"},
        "a stone",
        {"text": "b"},
    ]
    request = {"query": "river bridge", "documents": documents, "rank_fields": ["body"], "return_documents": True}
    answer = client.post("/v1/rerank", json=request).json()
    texts = {result["index"]: result["document"]["text"] for result in answer["results"]}
    assert texts == {0: "the river flooded the bridge", 1: "a hill", 2: "a stone", 3: "b"}
    assert answer["meta"]["warnings"] == ["documents: fields not used: seen"]
    refused = client.post("/v1/rerank", json=request | {"rank_fields": ["nothing"]}).json()
    assert refused["message"] == "documents[0].text: is missing or null"
    refused = client.post("/v1/rerank", json=request | {"rank_fields": ["nothing"] * 65}).json()
    assert refused["message"].startswith("rank_fields: ")
