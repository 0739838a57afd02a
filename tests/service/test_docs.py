"""The example on the page of the HTTP interface is served as it is shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("use/http-api.md", "use/documents-by-id.md", "use/spans-and-pruning.md", "run/configure.md")
PAGE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in NAMES)


def test_the_example_is_served_as_shown(embedded: TestClient) -> None:
    request = json.loads(PAGE.split("-d '")[1].split("'\n```")[0])
    shown = json.loads(PAGE.split("```json\n")[1].split("```")[0])
    answer = embedded.post("/rerank", json=request).json()
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
