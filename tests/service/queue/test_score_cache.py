"""The cache of scores: on a graph whose outputs are exact whatever batch they come from, so that answers can be held equal."""

import asyncio
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime.session import Session
from service.lru import Lru
from service.queue.batch import Caps
from service.queue.graphs import Graphs, GraphScorer, Priority
from service.queue.job import ENTRY_BYTES, Job, ModelError, ScoreCache, Scored, SequenceOutput, cost, sequence_key
from service.queue.worker import Worker
from service.telemetry.metrics import TABLE, Metrics
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, Faulty, Ints, wait_for
from tests.service.rankers import scorer_of

HIDDEN, ROOM = 3, 1 << 20
WORDS = "river bridge stone city flood year".split()
TAKEN = np.zeros(0, np.intp)


class Exact:
    """Outputs of a row that are sums of small whole numbers: of its tokens, their places and their types alone."""

    def __init__(self, width: int | None) -> None:
        self.width = width

    def score(self, ids: Ints, types: Ints, mask: Ints) -> NDArray[np.float32]:
        places = np.arange(1, ids.shape[1] + 1)
        logits = (ids * places * (1 + types) * mask).sum(1) % 997 / 8
        outputs = logits if self.width is None else logits[:, None] + np.arange(self.width)
        return outputs.astype(np.float32)


def summed(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """In the place of a learned aggregator."""
    return cast(NDArray[np.float32], (states * mask[..., None]).sum((1, 2)))


class Cached:
    """A worker with one model with a cache of `room` bytes, on its own metrics."""

    def __init__(self, pipeline: Pipeline, room: int, parts: dict[str, Any]) -> None:
        self.learned = parts.get("aggregator", {}).get("name") == "states"
        self.graph = Faulty(cast(Session, Exact(1 + HIDDEN if self.learned else None)))
        self.metrics = Metrics()
        self.worker = Worker(Caps(512, PATIENCE, hung_after=2 * FAR), self.metrics, room)
        config = pipeline.config.model_validate({"packing": {"budget": 96, "budget_range": (64, 128)}, **parts})
        self.pipeline = Pipeline(config, pipeline.tokenizer, pipeline.frequencies)
        self.model = self.another()

    def another(self) -> GraphScorer:
        """A model of the same graphs, as a reload makes one."""
        return scorer_of(self.worker, "one", Graphs(self.graph, None, summed if self.learned else None), self.pipeline)

    def sequences(self, query: str, texts: list[str], titles: list[str] | None = None, budget: int = 96) -> list[list[Packed]]:
        prepared = self.pipeline.prepare_documents(texts, titles or [""] * len(texts))
        asked = self.pipeline.prepare_query(query)
        return [self.pipeline.select(asked, one, budget).sequences if one.n_blocks else [] for one in prepared]

    def score(self, documents: list[list[Packed]]) -> Scored:
        return cast(Scored, asyncio.run(self.model.score_documents(documents)))

    def count(self, key: str, **labels: str) -> int:
        labels |= {"model": "one"} if "model" in TABLE[key].labels else {}
        return int(self.metrics.registry.get_sample_value(TABLE[key].name, labels) or 0)

    @property
    def fed(self) -> int:
        """Tokens that the graph has read."""
        return self.count("tokens")


@contextmanager
def running(pipeline: Pipeline, room: int = ROOM, **parts: Any) -> Iterator[Cached]:
    cached = Cached(pipeline, room, parts)
    cached.worker.start()
    wait_for(lambda: cached.worker.ready)
    yield cached
    cached.graph.open.set()
    cached.worker.close()


@pytest.fixture
def cached(pipeline: Pipeline) -> Iterator[Cached]:
    with running(pipeline) as cached:
        yield cached


TEXTS = ["the river flooded the bridge.", "a stone city. " * 30, "the year of the flood. " * 9]


def test_documents_that_are_new_are_scored_alone_and_the_others_do_not_reach_the_model(cached: Cached) -> None:
    documents = cached.sequences("which river", TEXTS)
    cached.score(documents[:1] + documents[2:])
    before = cached.fed
    scored = cached.score(documents)
    assert cached.fed - before == len(documents[1][0].ids)
    assert (cached.count("score_lookups", outcome="miss"), cached.count("score_lookups", outcome="hit")) == (3, 2)
    cached.graph.open.clear()  # whoever asked the model now would wait for ever
    again = cached.score(documents)
    assert (again.logits.tobytes(), again.model_seconds) == (scored.logits.tobytes(), 0)
    alone = [cached.graph.session.score(*rows(one[0])) for one in documents]
    assert scored.logits.tolist() == [float(logit[0]) for logit in alone]


def rows(packed: Packed) -> tuple[Ints, Ints, Ints]:
    ids = packed.ids[None].astype(np.int64)
    return ids, (np.arange(ids.shape[1]) >= packed.split).astype(np.int64)[None], np.ones_like(ids)


def test_a_model_that_is_loaded_again_begins_anew(cached: Cached) -> None:
    documents = cached.sequences("which river", TEXTS)
    cached.score(documents)
    before, cached.model = cached.fed, cached.another()
    cached.score(documents)
    assert cached.fed == 2 * before
    cached.worker.scores.clear()
    assert cached.count("score_cache_bytes") == 0
    cached.score(documents)
    assert cached.fed == 3 * before


AGGREGATORS = [{"name": "joint"}, {"name": "max", "passages": 3}, {"name": "term_weighted"}, {"name": "states", "passages": 3}]


@pytest.fixture(scope="module", params=AGGREGATORS, ids=lambda one: one["name"])
def pair(request: pytest.FixtureRequest, pipeline: Pipeline) -> Iterator[tuple[Cached, Cached]]:
    """The same model with a small cache and without one."""
    with (
        running(pipeline, 12 * ENTRY_BYTES, aggregator=request.param) as small,
        running(pipeline, 0, aggregator=request.param) as none,
    ):
        yield small, none


@given(
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    documents=st.lists(st.lists(st.sampled_from(WORDS), max_size=60), min_size=1, max_size=8),
    budget=st.sampled_from([64, 96, 128]),
)
def test_answers_are_those_without_a_cache(
    pair: tuple[Cached, Cached], query: list[str], documents: list[list[str]], budget: int
) -> None:
    """To the bit, over examples that meet each other's scores, with weights and states, where most are forgotten again."""
    small, none = pair
    asked = none.sequences(" ".join(query), [" ".join(words) for words in documents], budget=budget)
    expected, found = none.score(asked), small.score(asked)
    assert found.logits.tobytes() == expected.logits.tobytes()
    assert (found.passages is None) == (expected.passages is None)
    if found.passages is not None and expected.passages is not None:
        assert found.passages.tobytes() == expected.passages.tobytes()
    chosen = [packed for one in asked for packed in one]
    again, as_chosen = (asyncio.run(one.model.choose(chosen)) for one in (small, none))
    assert again.logits.tobytes() == as_chosen.logits.tobytes()
    assert small.count("score_cache_bytes") <= 12 * ENTRY_BYTES


def test_choosing_and_scoring_share_what_both_want_and_states_are_not_made_of_logits(pipeline: Pipeline) -> None:
    aggregator = {"name": "states", "passages": 3}
    with running(pipeline, aggregator=aggregator) as cached, running(pipeline, 0, aggregator=aggregator) as none:
        documents = cached.sequences("which river", TEXTS)
        sequences = [packed for one in documents for packed in one]
        tokens = sum(len(packed.ids) for packed in sequences)
        asyncio.run(cached.model.choose(sequences))
        assert cached.score(documents).logits.tobytes() == none.score(documents).logits.tobytes()
        assert cached.fed == 2 * tokens  # a logit is no state
        asyncio.run(cached.model.choose(sequences))
        assert cached.score(documents).logits.tobytes() == none.score(documents).logits.tobytes()
        assert cached.fed == 2 * tokens


def test_what_was_late_or_failed_is_not_known_afterwards(cached: Cached, clock: Leaping) -> None:
    documents = cached.sequences("which river", TEXTS)
    cached.graph.open.clear()
    cached.graph.stopped = clock.leap
    late = asyncio.run(cached.model.score_documents(documents, Priority(time.perf_counter() + FAR, [0, 1, 2])))
    assert (late.logits == -np.inf).all()
    cached.graph.open.set()
    cached.graph.fault = RuntimeError("the device caught fire")
    with pytest.raises(ModelError, match="caught fire"):
        cached.score(documents)
    assert cached.count("score_cache_bytes") == 0
    cached.graph.fault = None
    scored = cached.score(documents)
    assert cached.count("score_lookups", outcome="hit") == 0
    assert scored.logits.tolist() == [float(cached.graph.session.score(*rows(one[0]))[0]) for one in documents]


def test_what_was_done_in_time_is_known_afterwards(cached: Cached, clock: Leaping) -> None:
    """The model stops after some batches, and time is up; what it has said is as true as ever."""
    documents = cached.sequences("which river", ["bridge " * n for n in range(1, 37)])
    cached.graph.pause_after = len(cached.graph.shapes) + 3
    cached.graph.stopped = clock.leap
    priority = Priority(time.perf_counter() + FAR, list(range(len(documents))))
    part = asyncio.run(cached.model.score_documents(documents, priority))
    done = part.logits > -np.inf
    assert 0 < done.sum() < len(documents)
    cached.graph.open.set()
    whole = cached.score(documents)
    assert cached.count("score_lookups", outcome="hit") == done.sum()
    assert whole.logits[done].tobytes() == part.logits[done].tobytes()
    assert whole.logits.tolist() == [float(cached.graph.session.score(*rows(one[0]))[0]) for one in documents]


def test_marks_are_cached_only_for_jobs_that_want_them(cached: Cached) -> None:
    """A request without marks stores none; a later request with marks finds those of a request that had them."""
    (packed,), encoder = cached.sequences("which river", TEXTS[:1])[0], cached.model.ranker
    scores, marks = ScoreCache(ROOM, Metrics().of("one")), np.arange(len(packed.ids), dtype=np.float32)

    def job(*, wants: bool, padding: int = 5) -> tuple[Job, dict[int, bytes]]:
        made = Job([packed], encoder, marks=wants)
        missed = scores.recall(made)
        if missed:
            made.score(0, np.float32(1.5), np.pad(marks, (0, padding)))  # type: ignore[arg-type]
            scores.keep(made, missed)
        return made, missed

    assert job(wants=False)[1]
    assert job(wants=True)[1], "its score alone is known"
    found, missed = job(wants=True)
    assert not missed
    assert found.complete
    assert found.marks is not None
    assert found.marks[0].tolist() == marks.tolist()
    assert not job(wants=False)[1]


def test_sequences_and_graphs_have_keys_of_their_own(cached: Cached) -> None:
    ids = np.arange(5, dtype=np.int32)
    encoders = cached.model.ranker, cached.another().ranker
    others = [Packed(ids, 2, TAKEN), Packed(ids, 3, TAKEN), Packed(ids[:4], 2, TAKEN), Packed(ids[::-1].copy(), 2, TAKEN)]
    assert len({sequence_key(one, encoder) for one in others for encoder in encoders}) == 8
    assert sequence_key(Packed(ids.copy(), 2, TAKEN + 1, cut=True), encoders[0]) == sequence_key(others[0], encoders[0])


@pytest.mark.parametrize(("width", "marks"), [(0, 0), (385, 0), (0, 128)])
def test_an_entry_costs_about_what_is_counted(width: int, marks: int) -> None:
    kept: Lru[SequenceOutput] = Lru(1 << 24, cost)
    tracemalloc.start()
    for number in range(3000):
        output = np.zeros(width, np.float32) if width else np.zeros(1, np.float32)[0]
        kept.put(number.to_bytes(16, "little"), (output, np.zeros(marks, np.float32) if marks else None))
    del output
    real = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept) == 3000
    assert 0.8 * real < kept.nbytes < 1.4 * real
