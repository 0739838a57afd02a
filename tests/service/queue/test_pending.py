"""Two batches in flight: a graph that stops before each batch until a test lets it go on."""

import asyncio
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime.batching import BatchTooLargeError
from service.queue.batch import Caps
from service.queue.graphs import Graphs
from service.queue.job import Job, ModelDeadError, Scored
from service.queue.worker import Worker
from service.telemetry.metrics import Metrics
from tests.service.faults import PATIENCE, Ints, wait_for
from tests.service.queue.test_worker import CAP, shorter
from tests.service.rankers import scorer_of

LONGEST = 128
FULL = CAP // LONGEST  # sequences of the longest that fill a batch
LEARNED = {"aggregator": {"name": "states", "passages": 3}}


class Stopping:
    """The logit of a sequence is the sum of its tokens, modulo 1000; with `states` it is twice in a row.

    Attributes:
        batches: the ids of each that was begun.
        threads: names of those that it ran on.
        faults: what becomes of a batch that has this token.
        at_once: how many batches were computed at the same time at most.
        meanwhile: called while a batch is computed.
    """

    def __init__(self, *, states: bool = False) -> None:
        self.batches: list[Ints] = []
        self.threads: set[str] = set()
        self.faults: dict[int, BaseException] = {}
        self.at_once, self._now = 0, 0
        self.meanwhile: Callable[[], None] = lambda: None
        self._states, self._free, self._may = states, True, threading.Semaphore(0)

    def stop(self) -> None:
        """From now on each batch waits."""
        self._free, self._may = False, threading.Semaphore(0)
        self.batches.clear()

    def go(self, batches: int = 1) -> None:
        """So many go on."""
        self._may.release(batches)

    def go_on(self) -> None:
        """All go on."""
        self._free = True
        self.go(10_000)

    def score(self, ids: Ints, _types: Ints, mask: Ints) -> NDArray[np.float32]:
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        self.threads.add(threading.current_thread().name)
        self.batches.append(ids.copy())
        assert self._free or self._may.acquire(timeout=PATIENCE)
        self.meanwhile()
        self._now -= 1
        for token, fault in self.faults.items():
            if token in ids and (len(ids) > 1 or not isinstance(fault, BatchTooLargeError)):
                raise fault
        logits = ((ids * mask).sum(1) % 1000).astype(np.float32)
        return np.repeat(logits[:, None], 2, 1) if self._states else logits


def sequence(token: int, length: int = LONGEST) -> Packed:
    """All of one token."""
    return Packed(np.full(length, token, np.int32), 1, np.zeros(1, np.intp))


def expected(packed: Sequence[Packed]) -> list[float]:
    return [float(one.ids.astype(np.int64).sum() % 1000) for one in packed]


class Held:
    """A worker in front of such a graph, warm and stopped."""

    def __init__(self, pipeline: Pipeline, ahead: int, graph: Stopping | None = None, **parts: Any) -> None:
        self.graph = graph or Stopping()
        self.metrics, self.may_combine = Metrics(), threading.Event()
        self.combining: set[str] = set()  # names of threads
        self.may_combine.set()
        self.worker = Worker(Caps(CAP, PATIENCE, hung_after=PATIENCE), self.metrics, 1 << 20)
        learned = self.combine if "aggregator" in parts else None
        self.model = scorer_of(self.worker, "one", Graphs(self.graph, combine=learned, ahead=ahead), shorter(pipeline, **parts))
        self.worker.start()
        self.model.warmed.result(PATIENCE)
        self.graph.stop()

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        self.combining.add(threading.current_thread().name)
        """The best sequence."""
        assert self.may_combine.wait(PATIENCE)
        best: NDArray[np.float32] = np.where(mask, states[..., 0], -np.inf).max(1)
        return best

    def submit(self, packed: Sequence[Packed], **how: Any) -> Future[Scored]:
        return self.worker.submit(Job(packed, self.model.ranker, **how))

    def full(self, *tokens: int) -> list[Future[Scored]]:
        """Jobs of a full batch each, in this order."""
        return [self.submit([sequence(token)] * FULL, priority=number) for number, token in enumerate(tokens)]

    def in_flight(self, batches: int, begun: int) -> None:
        """Wait until so many were decided and not given out, and so many begun in all."""
        wait_for(lambda: self.worker.schedule.under_way == batches and len(self.graph.batches) == begun)

    def begun(self) -> list[int]:
        """The first token of each batch that was begun."""
        return [int(ids[0, 0]) for ids in self.graph.batches]


@pytest.fixture
def make_held(pipeline: Pipeline) -> Iterator[Callable[..., Held]]:
    """Makes workers, and closes them at the end."""
    made: list[Held] = []

    def make(ahead: int = 1, graph: Stopping | None = None, **parts: Any) -> Held:
        made.append(Held(pipeline, ahead, graph, **parts))
        return made[-1]

    yield make
    for one in made:
        one.graph.go_on()
        one.worker.close()


Make = Callable[..., Held]


def logits(future: Future[Scored]) -> list[float]:
    return future.result(PATIENCE).logits.tolist()


def test_while_a_batch_is_computed_the_next_is_ready_and_the_last_is_given_out(make_held: Make) -> None:
    held = make_held()
    first, second, third, fourth = held.full(1, 2, 3, 4)
    held.in_flight(2, begun=1)
    assert held.model.ranker.pace.seconds > 0, "of the warm-up"
    held.graph.go()
    assert logits(first) == [128] * FULL, "the second is computed, and has not ended"
    held.in_flight(2, begun=2)
    held.graph.go_on()
    assert [logits(one)[0] for one in (second, third, fourth)] == [256, 384, 512]
    assert held.begun() == [1, 2, 3, 4]
    assert held.graph.threads == {"device"}
    assert held.graph.at_once == 1


def test_a_request_during_a_batch_is_in_the_next(make_held: Make) -> None:
    """The device's thread is not idle until the computing one is given out, though nothing waited when that was begun."""
    held = make_held()
    (first,) = held.full(1)
    held.in_flight(1, begun=1)
    (second,) = held.full(2)
    held.in_flight(2, begun=1)
    held.graph.go_on()
    assert (logits(first)[0], logits(second)[0]) == (128, 256)


@pytest.mark.parametrize("aggregator", [{}, LEARNED], ids=["each", "learned"])
@pytest.mark.parametrize("seed", range(2))
def test_scores_and_decisions_are_those_of_one_in_flight(make_held: Make, seed: int, aggregator: dict[str, Any]) -> None:
    """Jobs of many lengths and priorities, all handed in before the first batch ends: the same batches in the same order."""

    def outcome(ahead: int) -> tuple[list[list[float]], list[bytes]]:
        draw = random.Random(seed)
        held = make_held(ahead, Stopping(states=bool(aggregator)), **aggregator)
        blocker = held.submit([sequence(1)] * FULL)
        held.in_flight(1, begun=1)
        jobs = [
            [sequence(draw.randrange(2, 9999), draw.randint(5, LONGEST)) for _ in range(draw.randint(1, 30))] for _ in range(12)
        ]
        with held.worker._changed:  # so that all of them come at once
            for number, packed in enumerate(jobs):
                held.worker._new.append(Job(packed, held.model.ranker, priority=number % 3))
            handed_in = list(held.worker._new)
        held.graph.go_on()
        found = [logits(job.future) for job in handed_in]
        assert found == [expected(packed) for packed in jobs]
        blocker.result(PATIENCE)
        return found, [ids.tobytes() for ids in held.graph.batches]

    assert outcome(0) == outcome(1)


def test_a_device_that_hangs_is_found_with_one_waiting_behind(make_held: Make) -> None:
    held = make_held()
    assert held.worker.busy_since is None
    held.full(1)
    held.in_flight(1, begun=1)
    since = held.worker.busy_since
    held.full(2)
    held.in_flight(2, begun=1)
    assert held.worker.busy_since == since, "to make another ready is no sign of life"
    assert held.worker.alive
    held.worker.caps = held.worker.caps._replace(hung_after=0.0)
    assert (held.worker.hung, held.worker.alive) == (True, False)
    held.graph.go(1)
    held.in_flight(1, begun=2)
    assert since is not None
    assert (held.worker.busy_since or 0) > since
    held.graph.go_on()
    wait_for(lambda: held.worker.alive)


@pytest.mark.parametrize("ahead", [0, 1])
def test_closing_answers_what_is_in_flight_and_fails_what_waits(make_held: Make, ahead: int) -> None:
    held = make_held(ahead)
    futures = held.full(*range(1, 9))
    held.in_flight(1 + ahead, begun=1)
    closing = threading.Thread(target=held.worker.close)
    closing.start()
    wait_for(lambda: held.worker._closing)
    held.graph.go_on()
    closing.join(PATIENCE)
    assert [logits(one)[0] for one in futures[:2]] == [128, 256]
    with pytest.raises(ModelDeadError):
        futures[-1].result(PATIENCE)
    wait_for(lambda: held.worker._device.dead or not ahead)
    assert not held.worker.alive


@pytest.mark.parametrize("ahead", [0, 1])
def test_what_ends_the_thread_that_computes_ends_the_worker(make_held: Make, ahead: int) -> None:
    held = make_held(ahead)
    held.graph.faults[1] = SystemExit("the thread is ended")
    futures = held.full(1, 2, 3)
    held.in_flight(1 + ahead, begun=1)
    held.graph.go_on()
    for future in futures:
        with pytest.raises(ModelDeadError, match="before this request was scored"):
            future.result(PATIENCE)
    wait_for(lambda: not held.worker.alive)
    assert not held.worker.ready
    assert held.begun() == [1], "nothing is run by a thread that died"
    with pytest.raises(ModelDeadError, match="not running"):
        held.full(1)


def test_each_graph_is_warmed_up_on_the_thread_that_runs_it(make_held: Make) -> None:
    """Providers keep something of each thread, and no request should wait for that."""
    held = make_held(1, Stopping(states=True), **LEARNED)
    assert (held.graph.threads, held.combining) == ({"device"}, {"model"})
    held.graph.go_on()
    asyncio.run(held.model.score_documents([[sequence(1)]]))
    assert (held.graph.threads, held.combining) == ({"device"}, {"model"})


def test_one_model_computes_at_a_time_whichever_decide_ahead(make_held: Make, pipeline: Pipeline) -> None:
    """Later models come, one to run ahead of and one not: they are warmed up, and run, when the device is done."""
    held = make_held()
    later, on_cpu = Stopping(), Stopping()
    beside: list[int] = []
    later.meanwhile = on_cpu.meanwhile = lambda: beside.append(held.graph._now)

    def with_one_in_flight(work: Callable[[], Any]) -> Any:
        held.graph.stop()
        held.full(1)
        held.in_flight(1, begun=1)
        done = work()
        time.sleep(0.02)  # enough to do it too early
        held.graph.go_on()
        return done

    cpu = with_one_in_flight(lambda: scorer_of(held.worker, "cpu", Graphs(on_cpu), shorter(pipeline)))
    cpu.warmed.result(PATIENCE)
    added = with_one_in_flight(lambda: scorer_of(held.worker, "later", Graphs(later, ahead=1), shorter(pipeline)))
    added.warmed.result(PATIENCE)
    first = with_one_in_flight(lambda: held.worker.submit(Job([sequence(3)] * FULL, cpu.ranker)))
    assert logits(first) == [384] * FULL
    mixed = [
        held.worker.submit(Job([sequence(token)] * FULL, model.ranker)) for token in range(8) for model in (added, cpu, held.model)
    ]
    assert [logits(one)[0] for one in mixed] == [128 * token for token in range(8) for _ in range(3)]
    assert (later.threads, on_cpu.threads) == ({"device"}, {"model"})
    assert set(beside) == {0}


def test_the_pace_is_the_devices_own(make_held: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch takes a second. The third waits for two others: at 3 s it began 1 s ago, and not 3."""
    graph, at = Stopping(), 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: at)

    def take_a_second() -> None:
        nonlocal at
        at += 1.0

    held = make_held(1, graph)
    measured: list[tuple[float, float]] = []
    held.model.pace.measured = lambda units, seconds: measured.append((units, seconds))  # type: ignore[method-assign]
    graph.meanwhile = take_a_second
    futures = held.full(1, 2, 3)
    held.in_flight(2, begun=1)
    graph.go_on()
    assert [logits(one)[0] for one in futures] == [128, 256, 384]
    assert measured == [(CAP, 1.0)] * 3
    assert held.metrics.registry.get_sample_value("keyblock_batch_seconds_sum", {"model": "one"}) == 3.0


def test_nothing_is_kept_of_a_batch_that_is_over(make_held: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is computed, no array of those before it is there; one more may wait."""
    held = make_held()
    alive: list[weakref.ref[Ints]] = []
    most: list[int] = []
    score = held.graph.score

    def watched(ids: Ints, types: Ints, mask: Ints) -> NDArray[np.float32]:
        most.append(sum(one() is not None for one in alive))
        alive.append(weakref.ref(ids))
        return score(ids, types, mask)

    monkeypatch.setattr(held.graph, "score", watched)
    held.graph.go_on()
    for future in held.full(*range(1, 20)):
        future.result(PATIENCE)
    assert set(most) == {0}
    wait_for(lambda: all(one() is None for one in alive))
