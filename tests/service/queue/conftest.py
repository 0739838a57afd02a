"""A worker in front of a graph that stops before each batch until a test lets it go on."""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime.batching import BatchTooLargeError
from service.queue.batch import Caps
from service.queue.graphs import Graphs, GraphScorer
from service.queue.job import Job, Scored
from service.queue.worker import Worker
from service.telemetry.metrics import TABLE, Metrics
from tests.service.clock import FAR
from tests.service.faults import PATIENCE, Ints, wait_for
from tests.service.rankers import scorer_of

CAP, LONGEST = 512, 128  # tokens of a batch and of a sequence
FULL = CAP // LONGEST  # sequences of the longest that fill a batch


class Stopping:
    """The logit of a sequence is the sum of its tokens, modulo 1000; with `states` it is twice in a row.

    Attributes:
        batches: the ids of each that was begun.
        threads: names of those that it ran on.
        faults: what becomes of a batch that has this token; one too large has more than one row.
        at_once: how many batches were computed at the same time at most.
        meanwhile: called while a batch is computed.
        stopped: called when a batch has to wait.
    """

    def __init__(self, *, states: bool = False) -> None:
        self.batches: list[Ints] = []
        self.threads: set[str] = set()
        self.faults: dict[int, BaseException] = {}
        self.at_once, self.now = 0, 0
        self.meanwhile: Callable[[], object] = bool
        self.stopped: Callable[[], object] = bool
        self._states, self._free, self._may = states, True, threading.Semaphore(0)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [ids.shape for ids in self.batches]

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
        self.now += 1
        self.at_once = max(self.at_once, self.now)
        self.threads.add(threading.current_thread().name)
        self.batches.append(ids.copy())
        if not (self._free or self._may.acquire(blocking=False)):
            self.stopped()
            assert self._may.acquire(timeout=PATIENCE)
        self.meanwhile()
        self.now -= 1
        for token, fault in self.faults.items():
            if token in ids and (len(ids) > 1 or not isinstance(fault, BatchTooLargeError)):
                raise fault
        logits = ((ids * mask).sum(1) % 1000).astype(np.float32)
        return np.repeat(logits[:, None], 2, 1) if self._states else logits


def sequence(token: int, length: int = LONGEST, weight: float = 1.0) -> Packed:
    """All of one token."""
    return Packed(np.full(length, token, np.int32), 1, np.zeros(1, np.intp), weight=weight)


def expected(packed: Sequence[Packed]) -> list[float]:
    return [float(one.ids.astype(np.int64).sum() % 1000) for one in packed]


@functools.cache
def shorter(pipeline: Pipeline, aggregator: str) -> Pipeline:
    passages = {"passages": 3} if aggregator in ("max", "states") else {}
    parts = {"packing": {"budget_range": (64, LONGEST)}, "aggregator": {"name": aggregator, **passages}}
    return Pipeline(PipelineConfig.model_validate(parts), pipeline.tokenizer, pipeline.frequencies)


class Held:
    """A worker in front of such a graph, with a cache of `room` bytes."""

    def __init__(
        self, pipeline: Pipeline, ahead: int, graph: Stopping | None = None, aggregator: str = "joint", room: int = 1 << 20
    ) -> None:
        learned = aggregator == "states"
        self.graph = graph or Stopping(states=learned)
        self.metrics, self.may_combine = Metrics(), threading.Event()
        self.may_combine.set()
        self.combined: list[tuple[tuple[int, ...], str]] = []  # shapes, and names of threads
        self.worker = Worker(Caps(CAP, PATIENCE, hung_after=2 * FAR), self.metrics, room)
        self._pipeline = shorter(pipeline, aggregator)
        self.model = self.add("one", self.graph, ahead, self.combine if learned else None)
        self.worker.start()

    def end(self) -> None:
        self.graph.go_on()
        self.may_combine.set()
        self.worker.close()

    def add(self, name: str, graph: Stopping, ahead: int = 0, combine: Any = None) -> GraphScorer:
        """Another model."""
        return scorer_of(self.worker, name, Graphs(graph, combine=combine, ahead=ahead), self._pipeline)

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The best sequence."""
        self.combined.append((mask.shape, threading.current_thread().name))
        assert self.may_combine.wait(PATIENCE)
        best: NDArray[np.float32] = np.where(mask, states[..., 0], -np.inf).max(1)
        return best

    def submit(self, packed: Sequence[Packed], model: GraphScorer | None = None, **how: Any) -> Future[Scored]:
        return self.worker.submit(Job(packed, (model or self.model).ranker, **how))

    def at_once(self, *jobs: Job) -> Sequence[Job]:
        """Hand in all of them before the worker sees any."""
        with self.worker._changed:
            self.worker._new += jobs
        return jobs

    def full(self, *tokens: int) -> list[Future[Scored]]:
        """Jobs of a full batch each, in this order."""
        return [self.submit([sequence(token)] * FULL, priority=number) for number, token in enumerate(tokens)]

    def in_flight(self, batches: int, begun: int) -> None:
        """Wait until so many were decided and not given out, and so many begun in all."""
        wait_for(lambda: self.worker.schedule.under_way == batches and len(self.graph.batches) == begun)

    def begun(self) -> list[int]:
        """The first token of each batch that was begun."""
        return [int(ids[0, 0]) for ids in self.graph.batches]

    def count(self, key: str, **labels: str) -> float:
        labels |= {"model": "one"} if "model" in TABLE[key].labels else {}
        return self.metrics.registry.get_sample_value(TABLE[key].name, labels) or 0.0


Make = Callable[..., Held]


@pytest.fixture
def make_cold(pipeline: Pipeline) -> Iterator[Make]:
    """Makes workers that warm up, and closes them at the end."""
    made: list[Held] = []

    def make(ahead: int = 1, graph: Stopping | None = None, *, learned: bool = False) -> Held:
        made.append(Held(pipeline, ahead, graph, "states" if learned else "joint"))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def make_held(make_cold: Make) -> Make:
    """Makes workers that are warm, and stopped."""

    def make(ahead: int = 1, graph: Stopping | None = None, *, learned: bool = False) -> Held:
        held = make_cold(ahead, graph, learned=learned)
        held.model.warmed.result(PATIENCE)
        held.graph.stop()
        return held

    return make


@pytest.fixture(params=[0, 1], ids=["one in flight", "two in flight"])
def ahead(request: pytest.FixtureRequest) -> int:
    return int(request.param)
