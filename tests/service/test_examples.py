import pytest
from starlette.testclient import TestClient

from service.app import RERANK_PATHS
from service.examples import EXAMPLES, Example


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_a_case_of_its_model_and_is_served_everywhere(client: TestClient, example: Example) -> None:
    example.model.model_validate(example.request)
    for path in RERANK_PATHS:
        response = client.post(path, json=example.request)
        assert response.status_code == 200, response.text
        answer = response.json()
        results = answer if "texts" in example.request else answer["results"]
        assert len(results) == (example.request.get("top_n") or len(results))
