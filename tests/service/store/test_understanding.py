"""Stored documents are understood behind the requests: none is lost, none comes back, and nobody waits for it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.encoders import Encoder, Texts, TokenTable
from keyblock.pipeline import Pipeline
from service.call import DEFAULT_NAMESPACE
from service.store.base import Item
from service.store.codec import Found, StoredDocument, encode, pack_text
from service.store.library import Library
from service.store.lmdb_store import LmdbStore
from service.telemetry.metrics import Metrics
from tests.service.faults import PATIENCE, wait_for
from tests.support.vectors import concept_table

MADE_BY = bytes(range(16))
TEXT = "In case of sickness, inform the manager before nine. "


class Gated(TokenTable):
    """A real encoder that waits at a gate, and may fail."""

    def __init__(self, table: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
        super().__init__(table, scales)
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()
        self.fault: Exception | None = None

    def quantized(self, several: Sequence[Texts], pause: Callable[[int], object] = int) -> list[NDArray[np.int8]]:
        self.reached.set()
        until = time.monotonic() + PATIENCE
        while not self.gate.wait(0.01):
            pause(0)
            assert time.monotonic() < until
        if self.fault is not None:
            raise self.fault
        return super().quantized(several, pause)


@pytest.fixture
def encoder(pipeline: Pipeline) -> Gated:
    table = concept_table(pipeline.tokenizer)
    return Gated(table.table, table.scales)


@pytest.fixture
def understanding(pipeline: Pipeline, encoder: Encoder) -> Pipeline:
    described = {"selector": {"name": "hybrid"}, "encoder": {"name": "static"}, "meaning": {}}
    config = PipelineConfig.model_validate(described)
    own = concept_table(pipeline.tokenizer, [["river"]])
    return Pipeline(config, pipeline.tokenizer, pipeline.frequencies, own, lambda: encoder)


@pytest.fixture
def opened(directory: Path, understanding: Pipeline) -> Iterator[Callable[[], Library]]:
    """Opens the store as a new process does; closes what the test leaves open."""
    libraries: list[Library] = []

    def make(*, reads: bool = True) -> Library:
        library = Library(LmdbStore(directory, 16 << 20), MADE_BY, 0, Metrics())
        library.reading.understanding = understanding.understanding if reads else None
        libraries.append(library)
        return library

    yield make
    for library in libraries:
        library.close()


def put(library: Library, pipeline: Pipeline, identity: str, text: str = TEXT) -> None:
    document = StoredDocument(identity, "T", pack_text(text), pipeline.prepare_document(text, "T"), MADE_BY)
    asyncio.run(library.put(DEFAULT_NAMESPACE, [Item(identity, encode(document))]))


def hold(library: Library, pipeline: Pipeline, encoder: Gated, *ids: str) -> None:
    """Store documents; the first is being understood until the gate opens."""
    encoder.gate.clear()
    for identity in ids:
        put(library, pipeline, identity)
    assert encoder.reached.wait(PATIENCE)


def found(library: Library, identity: str) -> Found | None:
    one = asyncio.run(library.look_up(DEFAULT_NAMESPACE, [identity], MADE_BY, texts=True))[identity]
    assert one is None or isinstance(one, Found)
    return one


def is_understood(library: Library, pipeline: Pipeline, identity: str) -> bool:
    one, understanding = found(library, identity), pipeline.understanding
    return one is not None and understanding is not None and understanding.has_read(one.stored.prepared)


def test_a_stored_document_is_understood_and_else_unchanged(opened: Any, understanding: Pipeline) -> None:
    library = opened()
    put(library, understanding, "a")
    wait_for(lambda: is_understood(library, understanding, "a"))
    one = found(library, "a")
    assert one is not None
    assert (one.text, one.stored.title) == (TEXT, "T")
    plain = understanding.prepare_document(TEXT, "T")
    assert one.stored.prepared.token_ids.tolist() == plain.token_ids.tolist()
    understanding.check(one.stored.prepared)
    wait_for(lambda: library.reading.waiting == 0)
    assert library._store.unread() == []


def test_what_a_process_leaves_unread_the_next_one_reads(opened: Any, understanding: Pipeline, encoder: Gated) -> None:
    """Also of a namespace and an id with any characters; no request names them."""
    first = opened()
    hold(first, understanding, encoder, "a", "b/\udcff\n")
    started = time.monotonic()
    first.close()  # in the middle of a document
    assert time.monotonic() - started < PATIENCE / 2
    encoder.gate.set()
    second = opened()
    wait_for(lambda: second._store.unread() == [])
    assert all(is_understood(second, understanding, identity) for identity in ("a", "b/\udcff\n"))


def test_a_newer_document_is_not_overwritten(opened: Any, understanding: Pipeline, encoder: Gated) -> None:
    library = opened()
    hold(library, understanding, encoder, "a")
    put(library, understanding, "a", "The river floods the bridge.")
    encoder.gate.set()
    wait_for(lambda: is_understood(library, understanding, "a"))
    one = found(library, "a")
    assert one is not None
    assert one.text == "The river floods the bridge."


def test_a_deleted_document_does_not_come_back(opened: Any, understanding: Pipeline, encoder: Gated) -> None:
    library = opened()
    hold(library, understanding, encoder, "a", "b")
    assert asyncio.run(library.delete(DEFAULT_NAMESPACE, "a"))
    encoder.gate.set()
    wait_for(lambda: is_understood(library, understanding, "b"))
    assert found(library, "a") is None
    assert library._store.unread() == []


def test_a_document_from_before_is_understood_after_its_next_use(opened: Any, understanding: Pipeline) -> None:
    before = opened(reads=False)
    put(before, understanding, "a")
    before.close()
    library = opened()
    assert not is_understood(library, understanding, "a")  # which is a use
    wait_for(lambda: is_understood(library, understanding, "a"))


def test_an_encoder_that_fails_costs_no_request(opened: Any, understanding: Pipeline, encoder: Gated, caplog: Any) -> None:
    library = opened()
    encoder.fault = RuntimeError("no memory")
    put(library, understanding, "a")
    wait_for(lambda: library.reading.understanding is None)
    assert "not understood until the next reload or start" in caplog.text
    put(library, understanding, "b")
    assert found(library, "b") is not None
    encoder.fault, library.reading.understanding = None, understanding.understanding  # a reload
    for identity in ("a", "b"):
        wait_for(lambda one=identity: is_understood(library, understanding, one))
