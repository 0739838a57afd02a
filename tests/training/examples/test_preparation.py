"""Prepared queries and documents of a collection: what they are, and how many are kept."""

from pathlib import Path

import pytest

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.selectors import SELECTORS
from training.data import examples as module
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import Document

BM25 = SELECTORS.create("bm25")


@pytest.fixture(scope="module")
def preparation(toy: Collection, toy_pipeline: Pipeline) -> Preparation:
    return Preparation(toy, toy_pipeline)


def test_gold_passages_go_with_their_documents(preparation: Preparation, toy: Collection) -> None:
    assert preparation.pair("river?", "river-3").gold == toy.spans["river?"]
    assert preparation.pair("river?", "river-3").document is preparation.document("river-3")
    assert preparation.pair("river?", "river-0").gold == []
    assert preparation.pair("river!", "river-3").gold == [], "of another query"


def test_what_is_prepared_is_kept(preparation: Preparation) -> None:
    assert preparation.document("river-0") is preparation.document("river-0")
    assert preparation.query("river?") is preparation.query("river?")


def test_no_more_documents_are_kept_than_there_is_room_for(
    toy: Collection, toy_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    made: list[str] = []

    def prepare(document: Document) -> PreparedDocument:
        made.append(document.doc_id)
        return toy_pipeline.prepare_document(document.text, document.title)

    preparation = Preparation(toy, toy_pipeline, prepare)
    for doc_id in ("river-0", "river-1", "river-0", "river-2", "river-1", "river-0"):
        assert preparation.document(doc_id).n_blocks
    assert made == ["river-0", "river-1", "river-2", "river-0"]


def test_empty_queries_and_documents_are_packed_like_any_other(toy_copy: Path, toy_pipeline: Pipeline) -> None:
    with (toy_copy / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.write('{"_id": "empty", "text": ""}\n')
    collection = Collection(toy_copy)
    collection.documents["void"] = collection.documents["river-0"]._replace(doc_id="void", title="", text=" \n ")
    preparation = Preparation(collection, toy_pipeline)
    assert preparation.pack("empty", "void", 96).ids.tolist() == [101, 102, 102]
    assert len(preparation.pack("empty", "river-0", 96).ids) > 20
    assert preparation.best_block("river?", "void", BM25) == 0
    assert preparation.best_block("empty", "river-0", BM25) == 0
