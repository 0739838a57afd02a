import asyncio
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.ranking.flow import Choose, Pack, Read, choosing
from keyblock.ranking.order import UNREAD, Candidate, candidate
from service.call import Documents
from service.lru import DocumentCache
from service.ranking.preparation import FEW, PIECE, Preparer, Threads, count_bytes, utf8_bytes
from service.telemetry.metrics import TABLE, Metrics
from tests.service.faults import PATIENCE

TEXTS = [f"The river flooded bridge {number}. " * (number % 7) for number in range(100)]
TITLES = ["Floods" if number % 3 else "" for number in range(100)]


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(2)
    yield threads
    threads.close()


async def chosen(
    preparer: Preparer,
    pipeline: Pipeline,
    documents: Documents,
    until: float | None = None,
    query: str = "river",
    budget: int = 96,
) -> list[Candidate]:
    """The documents with their blocks, through the steps of the flow; a model that chooses blocks has no time."""
    prepared = await preparer.query(partial(pipeline.prepare_query, query))
    flow, outcome = choosing(pipeline, prepared, budget, candidate), None
    while True:
        try:
            step = flow.send(outcome)
        except StopIteration as ended:
            return [one or UNREAD for one in ended.value.documents]
        if isinstance(step, Read):
            outcome = await preparer.read(documents, step.choose, until)
        elif isinstance(step, Choose):
            outcome = np.full(len(step.sequences), -np.inf, np.float32)
        else:
            assert isinstance(step, Pack)
            outcome = await preparer.pack(step.tokens, step.choose)


def prepare(preparer: Preparer, pipeline: Pipeline, texts: list[str], titles: list[str], budget: int = 128) -> list[Candidate]:
    documents = Documents(texts, titles, [None] * len(texts))
    return asyncio.run(chosen(preparer, pipeline, documents, query="river bridge", budget=budget))


def lookups(metrics: Metrics, outcome: str) -> float:
    return metrics.registry.get_sample_value(TABLE["cache_lookups"].name, {"outcome": outcome}) or 0.0


@pytest.mark.parametrize("capacity", [0, 1 << 24])
def test_equals_the_pipeline_document_by_document(pipeline: Pipeline, threads: Threads, capacity: int) -> None:
    """In slices, from the cache or not: the token ids are those of the plain pipeline, in the order given."""
    preparer = Preparer(pipeline, DocumentCache(capacity), threads, Metrics())
    query = pipeline.prepare_query("river bridge")
    for _ in range(2):
        found = prepare(preparer, pipeline, TEXTS, TITLES, budget=64)
        assert len(found) == len(TEXTS)
        for text, title, got in zip(TEXTS, TITLES, found, strict=True):
            document = pipeline.prepare_document(text, title)
            expected = candidate(document, pipeline.select(query, document, 64))
            assert len(got.sequences) == len(expected.sequences) == (text != "")
            assert got.blocks == expected.blocks
            assert np.array_equal(got.evidence, expected.evidence)
            for packed, alone in zip(got.sequences, expected.sequences, strict=True):
                assert np.array_equal(packed.ids, alone.ids)


def test_documents_seen_before_are_found(pipeline: Pipeline, threads: Threads) -> None:
    metrics = Metrics()
    preparer = Preparer(pipeline, DocumentCache(1 << 24), threads, metrics)
    prepare(preparer, pipeline, ["river", "bridge", "river"], ["", "", ""])
    assert (lookups(metrics, "hit"), lookups(metrics, "miss")) == (1, 2)  # the duplicate is prepared once
    prepare(preparer, pipeline, ["bridge", "stone", "river"], ["", "", "T"])
    assert (lookups(metrics, "hit"), lookups(metrics, "miss")) == (2, 4)


def test_many_large_requests_keep_no_small_one_waiting(
    pipeline: Pipeline, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thread there is for large ones hangs."""
    preparer = Preparer(pipeline, DocumentCache(0), threads, Metrics())
    go_on, prepared = threading.Event(), Pipeline.prepare_documents
    text = "The river flooded the bridge. " * 100

    def slowly(self: Pipeline, texts: list[str], *rest: Any) -> object:
        assert len(texts) == 1 or go_on.wait(PATIENCE)
        return prepared(self, texts, *rest)

    monkeypatch.setattr(Pipeline, "prepare_documents", slowly)

    async def work() -> list[Candidate]:
        large = [chosen(preparer, pipeline, Documents([text] * 200, [""] * 200, [None] * 200)) for _ in range(3)]
        waiting = [asyncio.ensure_future(one) for one in large]
        try:
            async with asyncio.timeout(PATIENCE):
                return await chosen(preparer, pipeline, Documents([text], [""], [None]))
        finally:
            assert not any(one.done() for one in waiting)
            go_on.set()
            await asyncio.gather(*waiting)

    (found,) = asyncio.run(work())
    assert found.read


@pytest.mark.parametrize("text", ["", "a bridge", "na\xefve", "\u6771\u4eac", "\U0001f600\u200d" * PIECE, "\ud800 alone"])
def test_bytes_are_those_of_utf8(text: str) -> None:
    assert utf8_bytes(text) == len(text.encode("utf-8", "surrogatepass"))


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=200) | st.just("plain words " * 50), max_size=9))
def test_bytes_are_counted_where_the_body_may_hold_many_beyond_the_characters(texts: list[str]) -> None:
    documents = Documents(texts, [""] * len(texts), [None] * len(texts))
    exact = [utf8_bytes(text) for text in texts]
    count_bytes(documents, len(json.dumps({"documents": texts}, ensure_ascii=False).encode()))
    assert sum(exact) - sum(documents.utf8) <= FEW * sum(map(len, texts))
    count_bytes(documents)
    assert documents.utf8 == exact


def test_a_body_of_few_characters_outside_ascii_is_not_counted_but_one_of_many_is() -> None:
    english, greek = (
        Documents(["The water is cold — today as it was on most days. " * 100], [""], [None]),
        Documents(["νερό " * 100], [""], [None]),
    )
    for documents in (english, greek):
        count_bytes(documents, len(documents.texts[0].encode()) + 30)
    assert english.utf8 == [5000]
    assert greek.utf8 == [900]


@pytest.mark.parametrize("selector", ["bm25", "learned"])
def test_what_is_not_prepared_in_time_is_unread(pipeline: Pipeline, threads: Threads, selector: str) -> None:
    """A slice that would not be done in time is not begun; one that takes too long is not waited for."""
    config = PipelineConfig.model_validate({"selector": {"name": selector}})
    selecting = Pipeline(config, pipeline.tokenizer, pipeline.frequencies)
    preparer = Preparer(selecting, DocumentCache(0), threads, Metrics())
    texts = ["The river flooded the bridge. " * n for n in (1, 2, 20_000)]
    texts = [texts[0]] * 32 + [texts[1]] * 32 + [texts[2]]  # three slices
    documents = Documents(texts, [""] * 65, [None] * 65)
    preparer.pace.measured(1, 3e-4)  # 180 s for the last one; the first slice of each thread is tried all the same

    async def work(until: float) -> list[bool]:
        found = await chosen(preparer, selecting, documents, until)
        return [candidate.read and bool(candidate.sequences) for candidate in found]

    now = time.perf_counter()
    assert asyncio.run(work(now - 1)) == [False] * 65
    assert asyncio.run(work(now + 60)) == [True] * 64 + [False]
    assert asyncio.run(work(now + 3600)) == [True] * 65


def test_a_query_waits_for_no_slice(pipeline: Pipeline, threads: Threads) -> None:
    """Others' slices occupy all threads; a request in a hurry begins with its query."""
    preparer, go_on = Preparer(pipeline, DocumentCache(0), threads, Metrics()), threading.Event()

    async def work() -> int:
        slices = [threads._small.submit(go_on.wait, PATIENCE) for _ in range(2 * threads.number)]
        await asyncio.sleep(0)
        try:
            await preparer.query(partial(pipeline.prepare_query, "river bridge"))
            return sum(one.done() for one in slices)
        finally:
            go_on.set()
            await asyncio.gather(*map(asyncio.wrap_future, slices))

    assert asyncio.run(work()) == 0


def test_a_pace_that_went_wrong_is_measured_again(pipeline: Pipeline, threads: Threads) -> None:
    """It would have every slice left out for ever."""
    preparer = Preparer(pipeline, DocumentCache(0), threads, Metrics())
    preparer.pace.measured(1, 1.0)

    async def work() -> list[bool]:
        documents = Documents(["The river flooded the bridge. " * 40] * 64, [""] * 64, [None] * 64)
        found = await chosen(preparer, pipeline, documents, time.perf_counter() + PATIENCE)
        return [candidate.read for candidate in found]

    assert any(asyncio.run(work()))
    for _ in range(20):
        asyncio.run(work())
    assert asyncio.run(work()) == [True] * 64
