"""Bundles that compare vectors, through HTTP: what says the same in other words is read, or scored so, stored or sent."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from keyblock.bundle import Manifest, load_bundle, write_bundle
from service.settings import Settings
from tests.service.conftest import rerank, warm
from tests.support.vectors import concept_table

FILLER = "The committee met again and spoke about the budget of the coming season at some length, as it had done before. "
PARAPHRASE = "In case of sickness, inform the manager before nine. "
TEXT = FILLER * 12 + PARAPHRASE * 3 + FILLER * 12
QUERY = "Whom do I tell when I am ill?"
TEXTS = {
    "none": FILLER * 9,
    "answer": FILLER * 20 + PARAPHRASE + FILLER * 20,
    "near": "The bridge is closed. The disease was rare. ",
    "": "",
}


def storing(settings: Settings, store: Path, *bundles: Path) -> AbstractContextManager[TestClient]:
    """A service of these bundles, with a store; the first one is the default, by which documents are stored."""
    return warm(settings.model_copy(update={"bundle": bundles, "store": str(store)}))


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
    with storing(settings, tmp_path / "store", bundle_path, hybrid) as client:
        yield client


def ask(client: TestClient, documents: list[dict[str, str]], **options: Any) -> dict[str, Any]:
    return rerank(client, query=QUERY, documents=documents, return_blocks=True, **options)


def best_block(client: TestClient, model: str, document: dict[str, str], **options: Any) -> str:
    block = ask(client, [document], model=model, **options)["results"][0]["blocks"][0]
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
    with storing(settings, tmp_path / "store", hybrid) as client:
        assert client.put("/documents", json={"id": "a", "text": TEXT}).json()["stored"] == 1
        assert PARAPHRASE.strip() in best_block(client, "hybrid", {"id": "a"}, strict=True)
        outcomes = client.get("/metrics").text
    assert 'keyblock_store_lookups_total{outcome="hit"} 1.0' in outcomes
    assert 'keyblock_store_lookups_total{outcome="stale"} 1.0' not in outcomes


@pytest.fixture(scope="module")
def scoring(settings: Settings, by_vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose only bundle scores by vectors alone: no graph is run."""
    with storing(settings, tmp_path_factory.mktemp("scoring") / "store", by_vectors) as client:
        yield client


def test_the_obvious_answer_is_first_and_no_token_is_read(scoring: TestClient) -> None:
    """Its block has two of the answer's concepts and says so: the highest cosine; what is empty comes last."""
    answer = ask(scoring, [{"text": text} for text in TEXTS.values()])
    results = answer["results"]
    assert [list(TEXTS)[one["index"]] for one in results] == ["answer", "near", "none", ""]
    block = results[0]["blocks"][0]
    assert TEXTS["answer"][block["start"] : block["end"]].strip() == PARAPHRASE.strip()
    assert [one.get("scored_by") for one in results] == [None, None, None, "order"]
    assert (answer["usage"]["total_tokens"], answer["meta"]["tokens_per_document"]) == (0, 0)


def test_a_deadline_costs_no_scores(scoring: TestClient) -> None:
    """Documents that are prepared in time are scored: there is no model to wait for, and none to run out of tokens."""
    documents = [{"text": text} for text in TEXTS.values()]
    in_time = ask(scoring, documents, deadline_ms=10_000)
    assert not in_time["meta"]["degraded"]
    assert in_time["results"] == ask(scoring, documents)["results"]
    hopeless = ask(scoring, documents, deadline_ms=1)["results"]
    assert len(hopeless) == len(TEXTS)


def test_documents_by_id_rank_as_their_texts(scoring: TestClient) -> None:
    for name, text in TEXTS.items():
        if name:
            assert scoring.put("/documents", json={"id": name, "text": text}).json()["stored"] == 1
    sent = ask(scoring, [{"id": name, "text": text} for name, text in TEXTS.items() if name])
    stored = ask(scoring, [{"id": name} for name in TEXTS if name], strict=True)
    assert stored["results"] == sent["results"]
    assert 'keyblock_store_lookups_total{outcome="stale"} 1.0' not in scoring.get("/metrics").text
