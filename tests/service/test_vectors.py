"""Bundles whose selector compares vectors, through HTTP: what says the same in other words is read, stored or sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from keyblock.bundle import Manifest, load_bundle, write_bundle
from service.app import create_app
from service.settings import Settings
from tests.service.faults import wait_for
from tests.support.vectors import concept_table

FILLER = "The committee met again and spoke about the budget of the coming season at some length, as it had done before. "
PARAPHRASE = "In case of sickness, inform the manager before nine. "
TEXT = FILLER * 12 + PARAPHRASE * 3 + FILLER * 12
QUERY = "Whom do I tell when I am ill?"


@pytest.fixture(scope="module")
def hybrid(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with a table that knows a few concepts."""
    plain, work = load_bundle(bundle_path), tmp_path_factory.mktemp("hybrid")
    concept_table(plain.tokenizer).write(work / "token_vectors.npz")
    parts = {"selector": {"name": "hybrid"}, "encoder": {"name": "static"}}
    changed = {"name": "hybrid", "pipeline": plain.manifest.pipeline.model_dump() | parts}
    files = {name: bundle_path / name for name in plain.manifest.files} | {"token_vectors.npz": work / "token_vectors.npz"}
    return write_bundle(work / "bundle", Manifest.model_validate(plain.manifest.model_dump() | changed), files).path


@pytest.fixture
def both(settings: Settings, bundle_path: Path, hybrid: Path, tmp_path: Path) -> Iterator[TestClient]:
    """A service of both bundles, and a store; the plain one is the default, by which documents are stored."""
    app = create_app(settings.model_copy(update={"bundle": (bundle_path, hybrid), "store": str(tmp_path / "store")}))
    with TestClient(app) as client:
        wait_for(lambda: bool(app.state.ranker.worker.ready))
        yield client


def best_block(client: TestClient, model: str, document: dict[str, str], **options: Any) -> str:
    body = {"query": QUERY, "documents": [document], "return_blocks": True, "model": model, **options}
    response = client.post("/rerank", json=body)
    assert response.status_code == 200, response.text
    block = response.json()["results"][0]["blocks"][0]
    return TEXT[block["start"] : block["end"]]


def test_the_answer_is_read_where_no_word_is_shared(both: TestClient) -> None:
    assert PARAPHRASE.strip() in best_block(both, "hybrid", {"text": TEXT})
    assert PARAPHRASE.strip() not in best_block(both, "tiny", {"text": TEXT})


def test_documents_stored_without_vectors_are_prepared_again(both: TestClient) -> None:
    """Two models that prepare differently share a store: the one that needs vectors makes them from the text."""
    assert both.put("/documents", json={"id": "a", "text": TEXT}).json()["stored"] == 1
    for _ in range(2):
        assert PARAPHRASE.strip() in best_block(both, "hybrid", {"id": "a"}, strict=True)
        assert PARAPHRASE.strip() not in best_block(both, "tiny", {"id": "a"}, strict=True)


def test_documents_stored_with_vectors_are_not(settings: Settings, hybrid: Path, tmp_path: Path) -> None:
    app = create_app(settings.model_copy(update={"bundle": (hybrid,), "store": str(tmp_path / "store")}))
    with TestClient(app) as client:
        wait_for(lambda: bool(app.state.ranker.worker.ready))
        assert client.put("/documents", json={"id": "a", "text": TEXT}).json()["stored"] == 1
        assert PARAPHRASE.strip() in best_block(client, "hybrid", {"id": "a"}, strict=True)
        outcomes = client.get("/metrics").text
    assert 'keyblock_store_lookups_total{outcome="hit"} 1.0' in outcomes
    assert 'keyblock_store_lookups_total{outcome="stale"} 1.0' not in outcomes
