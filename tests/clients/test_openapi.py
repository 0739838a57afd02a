"""The OpenAPI document: valid, and enough for a generator to make a client that works."""

import importlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from question import DOCUMENTS, QUERY, check
from running import Service


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, Any]:
    with urllib.request.urlopen(f"{service.url}/openapi.json") as answer:
        read: dict[str, Any] = json.load(answer)
    return read


@pytest.fixture(scope="module")
def generated(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The package that openapi-python-client makes of the document."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--meta", "none"]
    made = subprocess.run(
        [*command, "--path", "openapi.json", "--output-path", "keyblock_generated"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    said = made.stdout + made.stderr
    assert made.returncode == 0, said
    assert "PUT /documents" in said, "JSON lines are what the generator cannot write"
    assert said.count("will not be generated") == 1, said
    sys.path.insert(0, str(folder))
    return importlib.import_module("keyblock_generated")


def test_it_is_valid(document: dict[str, Any]) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_a_generated_client_ranks(service: Service, generated: ModuleType) -> None:
    from keyblock_generated.api.operations import models_v1_models_get
    from keyblock_generated.api.rerank import rerank_rerank_post, score_score_post
    from keyblock_generated.models import RerankRequest, ScoreRequest

    client = generated.Client(base_url=service.url)
    answer = rerank_rerank_post.sync(client=client, body=RerankRequest(query=QUERY, documents=DOCUMENTS))
    check([(result.index, result.relevance_score) for result in answer.results])
    scores = score_score_post.sync(client=client, body=ScoreRequest(queries=QUERY, documents=DOCUMENTS)).data
    assert {one.index: one.score for one in scores} == {result.index: result.relevance_score for result in answer.results}
    assert models_v1_models_get.sync_detailed(client=client).status_code == 200
