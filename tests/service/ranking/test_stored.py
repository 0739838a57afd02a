"""Documents by id enter a call once, whatever number of times they are asked for."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keyblock.pipeline import Pipeline
from service.call import Call, Documents
from service.errors import RequestError
from service.lru import DocumentCache
from service.pace import Pace, nothing_ahead
from service.ranking.admission import Admission, Place
from service.ranking.drive import Plan, look_up, renew
from service.ranking.preparation import Preparer, Threads, Watch, sizes
from service.settings import Limits
from service.store.base import Item
from service.store.codec import StoredDocument, encode, pack_text
from service.store.library import Library
from service.store.lmdb_store import LmdbStore
from service.telemetry.metrics import Metrics

OLD, NEW = bytes(16), bytes(range(16))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def library(tmp_path: Path, metrics: Metrics, pipeline: Pipeline) -> Iterator[Library]:
    """With the documents new and old, of which the second was prepared by another pipeline."""
    library = Library(LmdbStore(tmp_path / "store", 64 << 20), NEW, 0, metrics)
    items = []
    for name, fingerprint in (("new", NEW), ("old", OLD)):
        text = f"the river {name}. " * 1000
        document = StoredDocument(name, "T", pack_text(text), pipeline.prepare_document(text, "T"), fingerprint)
        items.append(Item(name, encode(document)))
    asyncio.run(library.put("default", items))
    yield library
    library.close()


def place(metrics: Metrics, most_bytes: int = 1 << 30) -> Place:
    return Admission(Limits(max_bytes_in_flight=most_bytes), lambda: nothing_ahead, metrics).enter(0)


def documents_by_id(*ids: str) -> Documents:
    documents = Documents([""] * len(ids), [""] * len(ids), list(ids))
    documents.by_id.ids.update(enumerate(ids))
    return documents


def entered(library: Library, documents: Documents, holder: Place, *, texts: bool = False) -> dict[str, StoredDocument]:
    parts = {"bundle": SimpleNamespace(pipeline=SimpleNamespace(check=id)), "scorer": SimpleNamespace(reads_texts=texts)}
    model: Any = SimpleNamespace(fingerprint=NEW, **parts)
    return asyncio.run(look_up(model, Call("q", documents), documents, library, holder, Plan(64)))


def test_what_is_found_is_entered(library: Library, metrics: Metrics) -> None:
    documents = documents_by_id("new", "x", "old", "new")
    stale = entered(library, documents, place(metrics))
    by_id = documents.by_id
    assert (set(by_id.found), by_id.stale, set(stale), by_id.unknown) == ({"new"}, {"old"}, {"old"}, {1})
    assert [text[:13] for text in documents.texts] == ["", "", "the river old", ""]
    assert documents.titles == ["", "", "T", ""]
    assert sizes(documents) == [14_999, 0, 14_999, 14_999]  # up to the last block's end
    assert [by_id.absent(number) for number in range(4)] == [False, True, False, False]
    entered(library, with_texts := documents_by_id("new"), place(metrics), texts=True)
    assert (with_texts.texts[0][:13], with_texts.titles) == ("the river new", ["T"])


def test_a_document_that_a_request_names_often_is_held_once(library: Library, metrics: Metrics) -> None:
    """Its text is counted as often as the answer repeats it."""
    once, often, with_texts = (place(metrics) for _ in range(3))
    entered(library, documents_by_id("new"), once)
    entered(library, documents := documents_by_id(*["new"] * 60), often)
    entered(library, documents_by_id(*["new"] * 60), with_texts, texts=True)
    assert often._held.bytes == once._held.bytes > 0
    assert with_texts._held.bytes > 60 * 15_000
    assert len({id(documents.by_id.prepared(number)) for number in range(60)}) == 1


def test_a_request_that_never_fits_is_an_error_and_one_that_does_not_fit_now_may_come_again(
    library: Library, metrics: Metrics
) -> None:
    with pytest.raises(RequestError, match="bytes once read, and the limit is 1000: ask for fewer") as raised:
        entered(library, documents_by_id("new"), place(metrics, 1000))
    assert raised.value.status == 422
    admission = Admission(Limits(max_bytes_in_flight=50_000), lambda: nothing_ahead, metrics)
    with admission.enter(40_000) as first, admission.enter(0) as second:
        first.set_bytes(40_000)
        with pytest.raises(RequestError, match="requests in flight hold") as raised:
            entered(library, documents_by_id("new"), second)
    assert (raised.value.status, admission.load.bytes) == (429, 0)


def test_a_stale_document_is_prepared_once_and_renewed(library: Library, metrics: Metrics, pipeline: Pipeline) -> None:
    documents = documents_by_id(*["old"] * 5, "new")
    stale = entered(library, documents, place(metrics))
    threads = Threads(2)
    preparer = Preparer(pipeline, DocumentCache(0), threads, metrics, NEW)
    watch = Watch(0, Pace(), threading.Event())
    prepared = preparer._prepared(documents, range(2), watch) + preparer._prepared(documents, range(2, 6), watch)
    threads.close()
    assert len({id(one) for one in prepared[:5]}) == 1
    assert set(documents.by_id.renewed) == {"old"}
    np.testing.assert_array_equal(prepared[0].token_ids, pipeline.prepare_document(documents.texts[0], "T").token_ids)
    renew(library, documents, stale, NEW)
    library._writer.submit(int).result()  # it writes one after the other
    found = asyncio.run(library.look_up("default", ["old"], NEW, texts=False))["old"]
    assert found is not None
    assert not found.stale
