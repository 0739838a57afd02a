from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import RerankAnswer, TeiResult
from service.app import NIM_PATH, RERANK_PATHS, SCORE_PATHS
from service.http.examples import ANSWERS, EXAMPLES, NIM_EXAMPLES, SCORE_EXAMPLES, Example


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_a_case_of_its_model_and_is_served_everywhere(client: TestClient, example: Example) -> None:
    example.model.model_validate(example.request)
    for path in RERANK_PATHS:
        response = client.post(path, json=example.request)
        assert response.status_code == 200, response.text
        answer = response.json()
        if (queries := example.request.get("queries")) is not None:
            assert [len(one["results"]) for one in answer["answers"]] == [len(one.get("candidates", (0, 1))) for one in queries]
            continue
        results = answer if "texts" in example.request else answer["data" if "top_k" in example.request else "results"]
        assert len(results) == (example.request.get("top_n") or example.request.get("top_k") or len(results))


@pytest.mark.parametrize(("path", "examples"), [*((path, SCORE_EXAMPLES) for path in SCORE_PATHS), (NIM_PATH, NIM_EXAMPLES)])
def test_an_example_of_another_path(client: TestClient, path: str, examples: dict[str, Example]) -> None:
    for example in examples.values():
        example.model.model_validate(example.request)
        assert client.post(path, json=example.request).status_code == 200


@pytest.mark.parametrize(("name", "shape"), [("native", RerankAnswer), ("tei", list[TeiResult])])
def test_an_answer_is_what_its_request_would_get(client: TestClient, name: str, shape: Any) -> None:
    TypeAdapter(shape).validate_python(ANSWERS[name])
    answer = client.post("/rerank", json=EXAMPLES[name].request).json()
    assert _keys(answer) == _keys(ANSWERS[name])
    shown = client.get("/openapi.json").json()["paths"]["/rerank"]["post"]["responses"]["200"]["content"]["application/json"]
    assert shown["examples"][name]["value"] == ANSWERS[name]


def _keys(value: Any) -> Any:
    """The names all the way down; of a list those of its elements, in whatever order."""
    if isinstance(value, dict):
        return {name: _keys(inner) for name, inner in value.items()}
    return sorted(map(repr, map(_keys, value))) if isinstance(value, list) else None
