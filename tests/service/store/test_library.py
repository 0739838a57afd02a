"""What a store that is slow, away or full costs the requests beside."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from keyblock.pipeline import Pipeline
from service.call import Documents
from service.errors import RequestError
from service.store.base import Item, Renewal, StoreFullError, StoreUnavailableError
from service.store.codec import StoredDocument, decode, encode, pack_text
from service.store.library import AT_ONCE, Library
from service.store.lmdb_store import LmdbStore
from service.telemetry.metrics import TABLE, Metrics
from tests.service.faults import PATIENCE, wait_for

OLD, NEW = bytes(16), bytes(range(16))


class Slow(LmdbStore):
    """A real store behind a gate, with faults put in."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 16 << 20)
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Exception | None = None

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | None]:
        self._pass()
        return super().get_many(namespace, ids)

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        self._pass()
        super().renew_many(namespace, renewals)

    def _pass(self) -> None:
        assert self.gate.wait(PATIENCE)
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def store(directory: Path) -> Slow:
    return Slow(directory)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def library(store: Slow, metrics: Metrics) -> Iterator[Library]:
    library = Library(store, NEW, 0, metrics)
    yield library
    store.gate.set()
    library.close()


def item(pipeline: Pipeline, identity: str, fingerprint: bytes = NEW) -> Item:
    text = f"the river {identity}"
    return Item(identity, encode(StoredDocument(identity, "T", pack_text(text), pipeline.prepare_document(text, "T"), fingerprint)))


def asked(*ids: str) -> Documents:
    documents = Documents([""] * len(ids), [""] * len(ids), list(ids))
    documents.by_id.ids.update(enumerate(ids))
    return documents


def look_up(library: Library, documents: Documents, until: float | None = None, *, texts: bool = False) -> None:
    asyncio.run(library.look_up(documents, NEW, texts=texts, until=until))


def test_what_is_found_is_entered(library: Library, pipeline: Pipeline) -> None:
    asyncio.run(library.put("default", [item(pipeline, "a"), item(pipeline, "b", OLD)]))
    documents = asked("a", "x", "b", "a")
    look_up(library, documents)
    by_id = documents.by_id
    assert (set(by_id.found), set(by_id.stale), by_id.unknown, by_id.known) == ({0, 3}, {2}, {1}, {0, 2, 3})
    assert (documents.texts, documents.titles) == (["", "", "the river b", ""], ["", "", "T", ""])
    assert by_id.chars == {0: 11, 1: 0, 2: 11, 3: 11}
    look_up(library, with_texts := asked("a"), texts=True)
    assert (with_texts.texts, with_texts.titles) == (["the river a"], ["T"])


def test_what_is_not_looked_up_in_time_is_neither_known_nor_unknown(library: Library, store: Slow, pipeline: Pipeline) -> None:
    asyncio.run(library.put("default", [item(pipeline, "a")]))
    documents = asked(*["a"] * (AT_ONCE + 1))
    store.gate.clear()

    async def work() -> None:
        await library.look_up(documents, NEW, texts=False, until=time.perf_counter() + 0.05)
        store.gate.set()

    asyncio.run(work())
    assert (documents.by_id.known, documents.by_id.unknown) == (set(), set())


def test_errors_are_answers_and_counted(library: Library, store: Slow, metrics: Metrics) -> None:
    store.fault = StoreUnavailableError("the cable is cut")
    with pytest.raises(RequestError, match="the store of documents does not answer: try again") as told:
        look_up(library, asked("a"))
    assert (told.value.status, told.value.retry_after) == (503, 2)
    store.fault = None
    with pytest.raises(RequestError, match="keeps none over") as told:
        asyncio.run(library.put("default", [Item("a", bytes(5 << 20))]))
    assert told.value.status == 507
    sample = metrics.registry.get_sample_value
    assert [sample(TABLE["store_errors"].name, {"why": why}) for why in ("unavailable", "full")] == [1, 1]


@pytest.mark.parametrize("fault", [None, StoreFullError("full"), StoreUnavailableError("away")])
def test_renewing_goes_on_beside_and_its_errors_are_nobodys(
    library: Library, store: Slow, pipeline: Pipeline, fault: Exception | None
) -> None:
    asyncio.run(library.put("default", [item(pipeline, "a", OLD), item(pipeline, "b", OLD)]))
    documents = asked("a", "b")
    look_up(library, documents)
    documents.by_id.renewed.update({n: pipeline.prepare_document(documents.texts[n], "T") for n in range(2)})
    asyncio.run(library.put("default", [item(pipeline, "b", OLD)]))  # somebody else was here
    store.gate.clear()
    store.fault = fault
    library.renew(documents, NEW)  # returns at once
    store.gate.set()
    wait_for(lambda: not library._renewing)
    store.fault = None
    prints = [decode(content).fingerprint for content in store.get_many("default", ["a", "b"]) if content]
    assert prints == [OLD if fault else NEW, OLD]


def test_an_expiry_is_the_documents_or_the_services(store: Slow, metrics: Metrics) -> None:
    now = time.time() * 1000
    for ttl, seconds, expected in ((0, None, 0), (60, None, 60), (60, 5, 5), (0, 0.5, 0.5)):
        expires = Library(store, NEW, ttl, metrics).expiry(seconds)
        assert expires == 0 if not expected else abs(expires - now - expected * 1000) < PATIENCE * 1000
    store.close()
