"""What a store that is slow, away or full costs the requests beside."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keyblock.pipeline import Pipeline
from service.call import DEFAULT_NAMESPACE
from service.errors import RequestError
from service.store.base import AWAY, Away, Item, Renewal, StoreFullError, StoreUnavailableError
from service.store.codec import Found, Seal, StoredDocument, decode, encode, pack_text
from service.store.library import BATCH_DOCUMENTS, Library
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


def look_up(
    library: Library, ids: list[str], *, until: float | None = None, texts: bool = False, room: Callable[[int], None] = int
) -> dict[str, Found | Away | None]:
    return asyncio.run(library.look_up(DEFAULT_NAMESPACE, ids, NEW, texts=texts, until=until, reserve=room))


def test_room_is_reserved_before_documents_are_read_and_decoded(library: Library, store: Slow, pipeline: Pipeline) -> None:
    """A short text in a few bytes is counted as what it unpacks to, before it is unpacked."""
    text = "x" + " " * 999_999  # one token
    content = encode(StoredDocument("a", "", pack_text(text), pipeline.prepare_document(text), NEW))
    assert len(content) < 1000
    asyncio.run(library.put("default", [Item("a", content)]))
    asked: list[int] = []
    look_up(library, ["a"], room=asked.append)
    assert asked[0] == len(content)
    assert len(content) / 2 < asked[1] < 4 * len(content)
    asked.clear()
    look_up(library, ["a"], room=asked.append, texts=True)
    assert asked[1] == pytest.approx(1_000_000, rel=0.01)

    def refuse(n_bytes: int) -> None:
        raise RequestError(429, f"no room for {n_bytes}")

    store.gate.clear()  # nothing is fetched
    with pytest.raises(RequestError, match=f"no room for {len(content)}"):
        look_up(library, ["a"], room=refuse)


class Partly(LmdbStore):
    """A store of which a part does not answer: that of some ids from the first, of others from when contents are asked for."""

    early, late = {"a", "d"}, {"c"}

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int | Away]:  # type: ignore[override]
        return [AWAY if one in self.early else size for one, size in zip(ids, super().sizes(namespace, ids), strict=True)]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | Away | None]:  # type: ignore[override]
        assert not self.early & set(ids), "room was not asked for"
        return [AWAY if one in self.late else found for one, found in zip(ids, super().get_many(namespace, ids), strict=True)]


def test_documents_that_are_away_and_documents_that_do_not_exist_are_distinguished(
    directory: Path, metrics: Metrics, pipeline: Pipeline
) -> None:
    library = Library(Partly(directory, 16 << 20), NEW, 0, metrics)
    asyncio.run(library.put("default", [item(pipeline, one) for one in "abcd"]))
    found = look_up(library, ["a", "x", "b", "c", "d"])
    outcomes = {name: one if one is None or one is AWAY else one.stored.id for name, one in found.items()}
    assert outcomes == {"a": AWAY, "x": None, "b": "b", "c": AWAY, "d": AWAY}
    sample = metrics.registry.get_sample_value
    assert [sample(TABLE["store_lookups"].name, {"outcome": outcome}) for outcome in ("hit", "miss", "away")] == [1, 1, 3]
    assert sample(TABLE["store_errors"].name, {"why": "unavailable"}) == 1
    with pytest.raises(RequestError, match="does not answer") as raised:
        asyncio.run(library.find("default", "a", int))
    assert (raised.value.status, raised.value.retry_after) == (503, 2)
    library.close()


def test_documents_are_read_in_steps_bounded_in_number_and_bytes(
    library: Library, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is asked for twice a step: for what is fetched, and for what it is decoded to."""
    ids = [f"{number:03}" for number in range(BATCH_DOCUMENTS + 1)]
    asyncio.run(library.put("default", [item(pipeline, identity) for identity in ids]))
    asked: list[int] = []
    assert list(look_up(library, ids, room=asked.append)) == ids
    assert len(asked) == 2 * 2
    monkeypatch.setattr("service.store.library.BATCH_BYTES", 1)
    asked.clear()
    assert list(look_up(library, ids, room=asked.append)) == ids
    assert len(asked) == 2 * len(ids)


def test_with_a_key_only_sealed_values_are_documents(store: Slow, metrics: Metrics, pipeline: Pipeline) -> None:
    """Also what was prepared again and written back; and who has no key cannot read what is sealed."""
    sealing, plain = Library(store, NEW, 0, metrics, Seal("k" * 32)), Library(store, NEW, 0, metrics)
    asyncio.run(sealing.put("default", [item(pipeline, "a"), item(pipeline, "b", OLD)]))
    asyncio.run(plain.put("default", [item(pipeline, "c")]))
    found = look_up(sealing, ["a", "b", "c"])
    assert [one and one.stored.id for one in found.values()] == ["a", "b", None]
    assert look_up(plain, ["a", "c"])["a"] is None
    stale = found["b"]
    assert stale is not None
    sealing.renew("default", [(stale.stored, pipeline.prepare_document("the river b", "T"))], NEW)
    wait_for(lambda: not sealing._renewing)
    renewed = look_up(sealing, ["b"])["b"]
    assert renewed is not None
    assert not renewed.stale
    for library in (sealing, plain):
        library._readers.shutdown()
        library._writer.shutdown()
    store.close()


@pytest.mark.parametrize("forged", ["token_ids", "title_ids"])
def test_a_token_that_the_model_does_not_know_is_as_if_it_were_not_there(
    library: Library, pipeline: Pipeline, caplog: pytest.LogCaptureFixture, forged: str
) -> None:
    """A graph fails on one, and with it every request of the batch."""
    vocabulary = pipeline.tokenizer.vocabulary_size
    good, whole = pipeline.prepare_document("the river", "T"), pack_text("the river")
    bad = replace(good, **{forged: np.full_like(getattr(good, forged), vocabulary)})
    items = [Item(name, encode(StoredDocument(name, "T", whole, one, NEW))) for name, one in (("good", good), ("bad", bad))]
    asyncio.run(library.put("default", items))
    found = asyncio.run(library.look_up("default", ["good", "bad"], NEW, texts=False, check=pipeline.check))
    assert [one and one.stored.id for one in found.values()] == ["good", None]
    (line,) = caplog.messages
    assert f"has the token {vocabulary}, and the model knows {vocabulary}; it is treated as if it were not there" in line


def test_a_document_under_the_id_of_another_is_not_taken_for_it(library: Library, store: Slow, pipeline: Pipeline) -> None:
    store.put_many("default", [Item("b", item(pipeline, "a").content)])
    assert look_up(library, ["b"]) == {"b": None}


def test_what_is_not_looked_up_in_time_is_neither_known_nor_unknown(library: Library, store: Slow, pipeline: Pipeline) -> None:
    asyncio.run(library.put("default", [item(pipeline, "a")]))
    store.gate.clear()

    async def work() -> dict[str, Found | None]:
        found = await library.look_up("default", ["a"], NEW, texts=False, until=time.perf_counter() + 0.05)
        store.gate.set()
        return found

    assert asyncio.run(work()) == {}


@pytest.mark.parametrize("fault", [None, StoreFullError("full"), StoreUnavailableError("away")])
def test_renewing_goes_on_beside_and_its_errors_are_nobodys(
    library: Library, store: Slow, pipeline: Pipeline, fault: Exception | None
) -> None:
    asyncio.run(library.put("default", [item(pipeline, "a", OLD), item(pipeline, "b", OLD)]))
    found = look_up(library, ["a", "b"])
    renewed = [(one.stored, pipeline.prepare_document(one.text or "", "T")) for one in found.values() if one is not None]
    asyncio.run(library.put("default", [item(pipeline, "b", OLD)]))  # somebody else was here
    store.gate.clear()
    store.fault = fault
    library.renew("default", renewed, NEW)  # returns at once
    store.gate.set()
    wait_for(lambda: not library._renewing)
    store.fault = None
    prints = [decode(content).fingerprint for content in store.get_many("default", ["a", "b"]) if content]
    assert prints == [OLD if fault else NEW, OLD]
