from typing import Any

import pytest
from starlette.testclient import TestClient

from service.dialects.fields import with_text_of

SONG = {"id": 7, "title": "River", "text": "I wish", "author": "Joni", "year": 1971}


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (["text"], {"text": "I wish", "title": None}),
        (["title", "text"], {"text": "I wish", "title": "River"}),
        (["author", "text", "title"], {"text": "Joni\nI wish", "title": "River"}),
        (["title"], {"text": "River"}),
        (["year"], {"text": None}),
        (["author", "publisher"], {"text": "Joni", "title": None}),
    ],
)
def test_the_text_is_what_the_fields_say(fields: list[str], read: dict[str, Any]) -> None:
    (found,) = with_text_of([SONG], fields)
    assert found == read | {"id": 7, "year": 1971} | ({} if "author" in fields else {"author": "Joni"})


@pytest.mark.parametrize("candidates", ["a river", None, 7, ["a river", 7]])
def test_what_is_no_object_stays_what_it_is(candidates: Any) -> None:
    assert with_text_of(candidates, ["text"]) == candidates


def test_over_http(client: TestClient) -> None:
    documents = [{"body": "the river flooded the bridge", "seen": "often"}, {"text": "a city", "body": "a hill"}, "a stone"]
    request = {"query": "river bridge", "documents": documents, "rank_fields": ["body"], "return_documents": True}
    answer = client.post("/v1/rerank", json=request).json()
    texts = {result["index"]: result["document"]["text"] for result in answer["results"]}
    assert texts == {0: "the river flooded the bridge", 1: "a hill", 2: "a stone"}
    assert answer["meta"]["warnings"] == ["documents: fields not used: seen"]
    refused = client.post("/v1/rerank", json=request | {"rank_fields": ["nothing"]})
    assert (refused.status_code, refused.json()["message"]) == (422, "documents[0].text: is missing or null")
