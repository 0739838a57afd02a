"""The cache of scores: on a graph whose outputs are exact whatever batch they come from, so that answers can be held equal."""

import asyncio
import time
import tracemalloc
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from service.lru import Lru
from service.queue.graphs import Priority
from service.queue.job import ENTRY_BYTES, Job, ModelError, ScoreCache, Scored, SequenceOutput, cost, sequence_key
from service.telemetry.metrics import Metrics
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE
from tests.service.queue.conftest import Held, Make, expected, sequence

TAKEN = np.zeros(0, np.intp)
SEQUENCES = [sequence(token, length) for token, length in ((2, 10), (3, 120), (4, 60))]
ONES = [[one] for one in SEQUENCES]  # documents of one sequence each
TOKENS = 190


@pytest.fixture
def held(make_held: Make) -> Held:
    made = make_held(0)
    made.graph.go_on()
    return made


def score(held: Held, documents: Sequence[Sequence[Packed]] = ONES) -> Scored:
    return asyncio.run(held.model.score_documents(documents))


def choose(held: Held, sequences: Sequence[Packed]) -> Scored:
    return asyncio.run(held.model.choose(sequences))


def test_documents_that_are_new_are_scored_alone_and_the_others_do_not_reach_the_model(held: Held) -> None:
    score(held, [ONES[0], ONES[2]])
    scored = score(held)
    assert held.count("tokens") == TOKENS
    assert (held.count("score_lookups", outcome="miss"), held.count("score_lookups", outcome="hit")) == (3, 2)
    held.graph.stop()  # whoever asked the model now would wait for ever
    again = score(held)
    assert (again.logits.tobytes(), again.model_seconds) == (scored.logits.tobytes(), 0)
    assert scored.logits.tolist() == expected(SEQUENCES)


def test_a_model_that_is_loaded_again_begins_anew(held: Held) -> None:
    score(held)
    held.model = held.add("one", held.graph)
    held.model.warmed.result(PATIENCE)
    score(held)
    assert held.count("tokens") == 2 * TOKENS
    held.worker.scores.clear()
    assert held.count("score_cache_bytes") == 0
    score(held)
    assert held.count("tokens") == 3 * TOKENS


@pytest.fixture(scope="module", params=["joint", "max", "term_weighted", "states"])
def pair(request: pytest.FixtureRequest, pipeline: Pipeline) -> Iterator[list[Held]]:
    """The same model with a small cache and without one."""
    made = [Held(pipeline, 0, aggregator=request.param, room=room) for room in (12 * ENTRY_BYTES, 0)]
    yield made
    for one in made:
        one.end()


DRAWN = st.builds(sequence, st.integers(2, 9), st.sampled_from([5, 40, 128]), st.sampled_from([1.0, 4.0]))


@given(documents=st.lists(st.lists(DRAWN, max_size=3), min_size=1, max_size=8))
def test_answers_are_those_without_a_cache(pair: list[Held], documents: list[list[Packed]]) -> None:
    """To the bit, over examples that meet each other's scores, with weights and states, where most are forgotten again."""
    if pair[0].model._pipeline.aggregator.joint:
        documents = [one[:1] for one in documents]
    found, without = (score(one, documents) for one in pair)
    assert found.logits.tobytes() == without.logits.tobytes()
    assert (found.passages is None) == (without.passages is None)
    if found.passages is not None and without.passages is not None:
        assert found.passages.tobytes() == without.passages.tobytes()
    chosen, of_none = (choose(one, [packed for document in documents for packed in document]) for one in pair)
    assert chosen.logits.tobytes() == of_none.logits.tobytes()
    assert pair[0].count("score_cache_bytes") <= 12 * ENTRY_BYTES


def test_choosing_and_scoring_share_what_both_want_and_states_are_not_made_of_logits(make_held: Make) -> None:
    held = make_held(0, learned=True)
    held.graph.go_on()
    for _ in range(2):
        assert choose(held, SEQUENCES).logits.tolist() == expected(SEQUENCES)
        assert score(held).logits.tolist() == expected(SEQUENCES)
        assert held.count("tokens") == 2 * TOKENS  # a logit is no state


def test_what_was_late_or_failed_is_not_known_afterwards(held: Held, clock: Leaping) -> None:
    held.graph.stop()
    held.graph.stopped = clock.leap
    late = asyncio.run(held.model.score_documents(ONES, Priority(time.perf_counter() + FAR, [0, 1, 2])))
    assert (late.logits == -np.inf).all()
    held.graph.go_on()
    held.graph.faults.update(dict.fromkeys((2, 3, 4), RuntimeError("the device caught fire")))
    with pytest.raises(ModelError, match="caught fire"):
        score(held)
    assert held.count("score_cache_bytes") == 0
    held.graph.faults.clear()
    assert score(held).logits.tolist() == expected(SEQUENCES)
    assert held.count("score_lookups", outcome="hit") == 0


def test_what_was_done_in_time_is_known_afterwards(held: Held, clock: Leaping) -> None:
    """The model stops after some batches, and time is up; what it has said is as true as ever."""
    sequences = [sequence(2, length) for length in range(5, 128, 3)]
    documents = [[one] for one in sequences]
    held.graph.stop()
    held.graph.go(3)
    held.graph.stopped = clock.leap
    priority = Priority(time.perf_counter() + FAR, list(range(len(documents))))
    part = asyncio.run(held.model.score_documents(documents, priority))
    done = part.logits > -np.inf
    assert 0 < done.sum() < len(documents)
    held.graph.go_on()
    whole = score(held, documents)
    assert held.count("score_lookups", outcome="hit") == done.sum()
    assert whole.logits[done].tobytes() == part.logits[done].tobytes()
    assert whole.logits.tolist() == expected(sequences)


def test_marks_are_cached_only_for_jobs_that_want_them(held: Held) -> None:
    """A request without marks stores none; a later request with marks finds those of a request that had them."""
    scores, marks = ScoreCache(1 << 20, Metrics().of("one")), np.arange(10, dtype=np.float32)

    def job(*, wants: bool) -> tuple[Job, dict[int, bytes]]:
        made = Job(SEQUENCES[:1], held.model.ranker, marks=wants)
        missed = scores.recall(made)
        if missed:
            made.score(0, np.float32(1.5), np.pad(marks, (0, 5)))  # type: ignore[arg-type]
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


def test_sequences_and_graphs_have_keys_of_their_own(held: Held) -> None:
    ids = np.arange(5, dtype=np.int32)
    encoders = held.model.ranker, held.add("one", held.graph).ranker
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
