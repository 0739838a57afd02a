"""Requests that are refused over HTTP: the error names the member as it was sent, in the shape of its dialect."""

from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import ErrorBody, TeiErrorBody

OPTIONS: list[tuple[str, object, str]] = [
    ("relevant_spans", True, "relevant_spans: input should be an object, and it is true"),
    ("relevant_spans", {"threshold": 0.5}, "relevant_spans.mode: field required"),
    ("min_score", 1.5, "min_score: input should be a number from 0 to 1, or 'auto', and it is 1.5"),
    ("min_score", "AUTO", "min_score: input should be a number from 0 to 1, or 'auto', and it is \"AUTO\""),
    ("fusion", 7, "fusion: input should be a name, or an object with one, and it is 7"),
    ("return_documents", "yes", 'return_documents: input should be a valid boolean, and it is "yes"'),
    ("top_n", "x" * 41, f'top_n: input should be a valid integer, and it is "{"x" * 40}" ...'),
    ("top_n", [3], "top_n: input should be a valid integer, and it is a list"),
    ("top_n", 1.5, "top_n: input should be a valid integer, and it is 1.5"),
    ("top_n", "3", 'top_n: input should be a valid integer, and it is "3"'),
    ("top_n", True, "top_n: input should be a valid integer, and it is true"),
    ("top_n", -1, "top_n: input should be greater than or equal to 0, and it is -1"),
    ("max_tokens_per_doc", "abc", 'max_tokens_per_doc: input should be a valid number, and it is "abc"'),
    ("max_tokens_per_doc", [1], "max_tokens_per_doc: input should be a valid number, and it is a list"),
    ("max_tokens_per_doc", True, "max_tokens_per_doc: input should be a valid number, and it is true"),
    ("raw_scores", {}, "raw_scores: input should be a valid boolean, and it is an object"),
    ("return_blocks", 1, "return_blocks: input should be a valid boolean, and it is 1"),
    ("model", 5, "model: input should be a valid string, and it is 5"),
]
QUERIES: list[tuple[dict[str, Any], str]] = [
    ({"queries": "river"}, 'queries: must be a list, not "river"'),
    ({"queries": [{"query": "q"}], "query": "q"}, "queries: stand beside query: send one of them"),
    ({"queries": [{"query": "q"}] * 65}, "queries: has 65 elements, limit 64"),
    ({"queries": [{"query": "q"}], "top_n": -1}, "top_n: input should be greater"),
    ({"queries": [{"query": "q"}], "top_n": -1e20}, "top_n: input should be greater than or equal to 0, and it is a number"),
    ({"queries": [{"query": "q"}], "document_ids": ["a", 1.5]}, "document_ids[1]: input should be a string or an integer"),
    ({"queries": [{"query": "q"}], "documents": ["a", 7]}, "documents[1]: must be a string"),
    ({"queries": [{"query": "q"}], "documents": ["a"], "document_ids": ["a"]}, "documents: stand beside document_ids"),
    ({"queries": [{"query": "q"}], "documents": ["a"], "strict": True, "model": "other"}, "model: 'other' is not served here"),
]
TEI: list[tuple[dict[str, Any], str]] = [
    ({"query": "", "texts": ["a"]}, "query: is empty"),
    ({"texts": ["a"]}, "query: is missing"),
    ({"query": "q", "texts": ["a", 5]}, "texts[1]: must be a string"),
    ({"query": "q", "texts": 5}, "texts: must be a list"),
    ({"query": "q", "texts": ["a"], "raw_scores": "yes"}, "raw_scores: input should be a valid boolean"),
]
PATHS: list[tuple[str, dict[str, Any], str]] = [
    ("/score", {"text_1": "q"}, "text_2: is missing"),
    ("/score", {"text_2": ["a"]}, "text_1: is missing"),
    ("/score", {"text_1": [], "text_2": ["a"]}, "text_1: must be a string, not a list"),
    ("/score", {"queries": ["q", "r"], "documents": ["a", "b"]}, "queries[1]: differs from the first"),
    ("/score", {"text_1": ["q", "q"], "text_2": ["a"]}, "text_1: has 2 elements, and text_2 has 1"),
    ("/score", {"text_1": "q", "text_2": ["a", 7]}, "text_2[1]: must be a string"),
    ("/v1/ranking", {"query": "q"}, "passages: is missing"),
    ("/v1/ranking", {"query": {"text": " "}, "passages": [{"text": "a"}]}, "query.text: is empty"),
    ("/v1/ranking", {"query": {"text": "q"}, "passages": [{"text": 7}]}, "passages[0].text: must be a string"),
    *(("/rerank", {"query": "q", "documents": ["a"], field: value}, message) for field, value, message in OPTIONS),
    *(("/rerank", body, message) for body, message in (*QUERIES, *TEI)),
]


@pytest.mark.parametrize(("path", "body", "message"), PATHS)
def test_an_error_names_the_member_as_it_was_sent(client: TestClient, path: str, body: dict[str, Any], message: str) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 422
    error = TypeAdapter[Any](TeiErrorBody if "texts" in body else ErrorBody).validate_json(response.content)
    assert error["message"].startswith(message)
    if "texts" in body:
        assert (error["error"], error["error_type"]) == (error["message"], "Validation")
    else:
        assert error["error"]["message"] == error["message"]
