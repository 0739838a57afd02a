"""The pages of the HTTP interface name everything that is declared in the code, and the example there is served."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from keyblock.wire import (
    NOT_HONOURED,
    Deletion,
    DocumentLine,
    Meta,
    ReloadAnswer,
    RerankAnswer,
    RerankRequest,
    Result,
    StoredAnswer,
    StoredText,
    TeiOptions,
)
from service.app import DOCUMENT_ERRORS, ERRORS, OPERATIONS, RERANK_PATHS
from service.http.admin import NOT_RELOADED, RELOAD_ANSWERS, RELOAD_PATH
from service.telemetry.metrics import STAGES

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("use/http-api.md", "use/documents-by-id.md", "use/spans-and-pruning.md", "run/configure.md")
PAGE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in NAMES)


@pytest.mark.parametrize(
    "name",
    [
        *RerankRequest.model_fields,
        *TeiOptions.model_fields,
        *OPERATIONS,
        *RERANK_PATHS,
        *map(str, ERRORS | DOCUMENT_ERRORS),
        *DocumentLine.model_fields,
        *StoredAnswer.__annotations__,
        *StoredText.__annotations__,
        *Deletion.__annotations__,
        *STAGES,
        *RerankAnswer.__annotations__,
        *Result.__annotations__,
        *Meta.__annotations__,
        *ReloadAnswer.__annotations__,
        RELOAD_PATH,
        NOT_RELOADED,
        *map(str, RELOAD_ANSWERS),
    ],
)
def test_everything_declared_is_named(name: str) -> None:
    assert name in PAGE


def test_the_docs_name_the_options_that_are_ignored() -> None:
    (row,) = (line for line in PAGE.splitlines() if "accepted and ignored" in line)
    assert row.split("|")[1].strip().replace("`", "").split(", ") == NOT_HONOURED


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
