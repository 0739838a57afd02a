"""The model's thread: on a real session, and with sessions that fail in every way."""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.aggregation import AGGREGATORS, aggregate
from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime import batching
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import OutOfMemoryError, Session
from service.queue.batch import Caps
from service.queue.graphs import Graphs, Priority
from service.queue.job import Aggregation, Job, ModelError, Scored
from service.queue.schedule import ROUND_BATCHES
from service.queue.worker import Worker
from service.telemetry.metrics import TABLE, Metrics
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, Faulty, wait_for
from tests.service.rankers import scorer_of

CAP = 512
SHAPES = batching.shapes(batching.capped(128, CAP))


class One(Worker):
    """A worker with a model for sequences of up to 128 tokens; `parts` are its pipeline's where it is not the default one."""

    def __init__(self, graphs: Graphs, pipeline: Pipeline, metrics: Metrics | None = None, **parts: Any) -> None:
        super().__init__(Caps(CAP, PATIENCE, hung_after=2 * FAR), metrics or Metrics())
        self.model = scorer_of(self, "one", graphs, shorter(pipeline, **parts))


def shorter(pipeline: Pipeline, **parts: Any) -> Pipeline:
    config = PipelineConfig.model_validate({"packing": {"budget_range": (64, 128)}, **parts})
    return Pipeline(config, pipeline.tokenizer, pipeline.frequencies)


def submit(worker: One, packed: Sequence[Packed]) -> Future[Scored]:
    """Sequences for the ranker, each for itself."""
    return worker.submit(Job(packed, worker.model.ranker))


@pytest.fixture(params=[0, 1], ids=["one in flight", "two in flight"])
def ahead(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def graphs(faulty: Faulty, ahead: int) -> Graphs:
    return Graphs(faulty, ahead=ahead)


@pytest.fixture
def worker(graphs: Graphs, faulty: Faulty, pipeline: Pipeline) -> Iterator[One]:
    worker = One(graphs, pipeline)
    worker.start()
    wait_for(lambda: worker.ready)
    faulty.shapes.clear()
    yield worker
    faulty.open.set()
    worker.close()


@pytest.fixture(scope="session")
def packed(pipeline: Pipeline) -> list[Packed]:
    """Forty sequences of 5 to 128 tokens."""
    query = pipeline.prepare_query("which river flooded the bridge")
    texts = [f"number {n}: " + "the river flooded the old stone bridge. " * (n % 20) for n in range(40)]
    return [pipeline.select(query, document).packed for document in pipeline.prepare_documents(texts)]


def logits_alone(session: Session, packed: Sequence[Packed]) -> NDArray[np.float32]:
    """The obvious version: one sequence at a time, without padding."""
    logits = []
    for sequence in packed:
        ids = sequence.ids[None].astype(np.int64)
        types = (np.arange(ids.shape[1]) >= sequence.split).astype(np.int64)[None]
        logits.append(session.score(ids, types, np.ones_like(ids))[0])
    return np.asarray(logits)


def done(*futures: Future[Scored]) -> list[Scored]:
    return [future.result(PATIENCE) for future in futures]


def begun(worker: Worker) -> bool:
    """Whether the oldest job is taken into a round."""
    jobs = worker.jobs()
    return not jobs or not jobs[0].n_waiting


def count(worker: One, key: str, **labels: str) -> float:
    labels = ({"model": "one"} if "model" in TABLE[key].labels else {}) | labels
    return worker._metrics.registry.get_sample_value(TABLE[key].name, labels) or 0.0


def test_scores_equal_one_at_a_time(worker: One, faulty: Faulty, session: Session, packed: list[Packed]) -> None:
    (scored,) = done(submit(worker, packed))
    assert scored.logits == pytest.approx(logits_alone(session, packed), abs=1e-5)
    assert scored.queue_seconds >= 0
    assert scored.model_seconds > 0
    assert worker.model.pace.seconds > 0
    done(*(submit(worker, packed[start:]) for start in range(0, 40, 7)))
    assert set(faulty.shapes) <= set(SHAPES), "only known shapes are run"


def test_concurrent_requests_share_batches_and_get_their_own_scores(
    worker: One, faulty: Faulty, session: Session, packed: list[Packed]
) -> None:
    alike = sorted(packed, key=lambda p: len(p.ids))[-8:]  # all in the longest bucket: four fill a batch
    requests = [alike[:2], alike[2:4], alike[4:6], alike[6:]]
    faulty.open.clear()
    first = submit(worker, packed[:1])  # keeps the thread busy while the others come in
    wait_for(lambda: begun(worker))
    futures = [submit(worker, request) for request in requests]
    faulty.open.set()
    done(first)
    for request, scored in zip(requests, done(*futures), strict=True):
        assert scored.logits == pytest.approx(logits_alone(session, request), abs=1e-5)
    assert faulty.shapes[1:] == [(4, 128), (4, 128)]


def test_every_shape_is_warmed_up_before_it_is_ready(
    graphs: Graphs, faulty: Faulty, pipeline: Pipeline, packed: list[Packed]
) -> None:
    metrics = Metrics()
    worker = One(graphs, pipeline, metrics)
    faulty.open.clear()
    worker.start()
    assert (worker.alive, worker.ready) == (True, False)
    early = submit(worker, packed[:3])  # waits for the warm-up
    faulty.open.set()
    done(early)
    assert worker.ready
    assert list(dict.fromkeys(faulty.shapes)) == SHAPES
    worker.close()


def test_an_exception_fails_its_request_and_the_worker_goes_on(
    worker: One, faulty: Faulty, session: Session, packed: list[Packed]
) -> None:
    by_length = sorted(packed, key=lambda p: len(p.ids))
    short, long = by_length[:3], by_length[-3:]
    faulty.fault = RuntimeError("the device caught fire")
    faulty.only_with = next(int(token) for token in long[0].ids if all(token not in p.ids for p in short))
    hit, other = submit(worker, long), submit(worker, short)
    with pytest.raises(ModelError, match="caught fire"):
        hit.result(PATIENCE)
    assert done(other)[0].logits == pytest.approx(logits_alone(session, short), abs=1e-5)
    faulty.fault = None
    assert done(submit(worker, long))[0].logits == pytest.approx(logits_alone(session, long), abs=1e-5)
    assert worker.ready
    assert count(worker, "batches", outcome="failed") == 1


def test_a_batch_too_large_for_the_memory_is_split_and_not_tried_again(
    worker: One, faulty: Faulty, session: Session, packed: list[Packed]
) -> None:
    """Even where all of it is one request's."""
    faulty.fault, faulty.memory = OutOfMemoryError("failed to allocate"), 128
    assert done(submit(worker, packed))[0].logits == pytest.approx(logits_alone(session, packed), abs=1e-5)
    assert count(worker, "batches", outcome="failed") == 0
    split, tried, longest = count(worker, "batches", outcome="split"), len(faulty.shapes), max(packed, key=lambda p: len(p.ids))
    assert split > 0
    assert worker.model.ranker.most_rows[128] == 1
    done(submit(worker, [longest] * 40))
    assert count(worker, "batches", outcome="split") == split
    assert len(faulty.shapes) == tried + 40
    faulty.memory = 64
    with pytest.raises(ModelError, match="failed to allocate"):
        done(submit(worker, packed))  # some have 128 tokens alone
    assert worker.alive


def test_a_failing_warm_up_leaves_it_dead_not_hanging(graphs: Graphs, faulty: Faulty, pipeline: Pipeline) -> None:
    faulty.fault = RuntimeError("no memory")
    worker = One(graphs, pipeline)
    worker.start()
    wait_for(lambda: not worker.alive)
    assert not worker.ready
    worker.close()


def test_cancelled_sequences_are_dropped_before_the_next_round(worker: One, faulty: Faulty, packed: list[Packed]) -> None:
    longest = max(packed, key=lambda p: len(p.ids))
    faulty.open.clear()
    large = submit(worker, [longest] * 400)
    wait_for(lambda: bool(worker.jobs()) and worker.jobs()[0].n_waiting < 400)
    assert large.cancel()
    faulty.open.set()
    done(submit(worker, packed[:2]))
    assert len(faulty.shapes) <= ROUND_BATCHES + 2
    assert count(worker, "queued") == 0


def test_cancelling_the_await_cancels_the_job(worker: One, faulty: Faulty, packed: list[Packed]) -> None:
    async def work() -> None:
        faulty.open.clear()
        task = asyncio.create_task(worker.model.choose(packed))
        while not worker.jobs():
            await asyncio.sleep(0.001)
        (job,) = worker.jobs()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert job.finished
        faulty.open.set()
        assert len((await worker.model.choose(packed[:4])).logits) == 4

    asyncio.run(work())


def test_tokens_and_padding_are_counted(worker: One, faulty: Faulty, packed: list[Packed]) -> None:
    done(submit(worker, packed))
    n_tokens = sum(len(p.ids) for p in packed)
    assert count(worker, "tokens") == n_tokens
    assert count(worker, "padding") == sum(rows * length for rows, length in faulty.shapes) - n_tokens
    assert count(worker, "batches", outcome="ok") == len(faulty.shapes)


def test_when_time_is_up_the_first_in_order_are_scored(
    worker: One, faulty: Faulty, session: Session, packed: list[Packed], clock: Leaping
) -> None:
    """The model stops after its first round; it would go on later, but then time is up."""
    documents = [[p] for p in packed]
    order = list(range(39, -1, -1))

    async def work() -> Scored:
        faulty.pause_after, faulty.stopped = 6, clock.leap
        priority = Priority(time.perf_counter() + FAR, order)
        return await worker.model.score_documents(documents, priority)

    known = asyncio.run(work()).logits
    scored = np.flatnonzero(known > -np.inf)
    assert 0 < len(scored) < 40
    assert known[scored] == pytest.approx(logits_alone(session, [packed[n] for n in scored]), abs=1e-5)
    assert scored.max() == 39
    faulty.pause_after = None
    faulty.open.set()
    wait_for(lambda: not sum(worker.waiting()))
    assert done(submit(worker, packed))[0].logits == pytest.approx(logits_alone(session, packed), abs=1e-5)


def test_when_time_is_up_from_the_start_nothing_is_run(worker: One, faulty: Faulty, packed: list[Packed]) -> None:
    priority = Priority(time.perf_counter() - 1, [0])
    assert asyncio.run(worker.model.score_documents([packed[:2], []], priority)).logits.tolist() == [-np.inf, -np.inf]
    assert asyncio.run(worker.model.choose(packed[:2], priority)).logits.tolist() == [-np.inf, -np.inf]
    job = Job(packed, worker.model.ranker, until=time.perf_counter() - 1)
    with pytest.raises(CancelledError):
        worker.submit(job).result(PATIENCE)
    assert job.known().logits.tolist() == [-np.inf] * len(packed)
    assert faulty.shapes == []


class Parade:
    """A worker for passages' states, with a selector of its own and a learned aggregator that can be stopped and broken."""

    def __init__(self, path: Path, pipeline: Pipeline, ahead: int) -> None:
        self.model = GraphModel.open(load_bundle(path), Provider.CPU, 1)
        self.selector_session = self.model.selector or self.model.session
        self.ranker, self.selector = Faulty(self.model.session), Faulty(self.selector_session)
        self.combined: list[tuple[int, ...]] = []
        self.open = threading.Event()
        self.open.set()
        self.fault: Exception | None = None
        aggregator = {"name": "states", "passages": 5}
        self.worker = One(Graphs(self.ranker, self.selector, self.combine, ahead), pipeline, aggregator=aggregator)

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        self.combined.append(mask.shape)
        assert self.open.wait(PATIENCE)
        if self.fault is not None:
            raise self.fault
        return self.model.combine(states, mask)

    def score(self, documents: list[list[Packed]]) -> Scored:
        return asyncio.run(self.worker.model.score_documents(documents))

    def expected(self, documents: list[list[Packed]]) -> NDArray[np.float32]:
        counts = np.asarray([len(sequences) for sequences in documents])
        outputs = self.model.outputs([packed for sequences in documents for packed in sequences])
        return aggregate(AGGREGATORS.create({"name": "states"}), outputs, counts, self.model.combine).logits


@pytest.fixture
def parade(bundle_of: Callable[[str], Path], pipeline: Pipeline, ahead: int) -> Iterator[Parade]:
    parade = Parade(bundle_of("parade by binb2"), pipeline, ahead)
    parade.worker.start()
    wait_for(lambda: parade.worker.ready)
    yield parade
    parade.open.set()
    parade.worker.close()


def test_choosing_takes_the_selectors_logits_or_the_first_column_of_the_rankers(parade: Parade, packed: list[Packed]) -> None:
    chosen = asyncio.run(parade.worker.model.choose(packed)).logits
    assert chosen == pytest.approx(logits_alone(parade.selector_session, packed), abs=1e-4)
    (scored,) = done(submit(parade.worker, packed))  # the ranker, as a bundle without a selector of its own is asked
    assert scored.logits == pytest.approx(parade.model.outputs(packed)[:, 0], abs=1e-5)
    assert scored.logits.shape == (len(packed),)


def test_a_failing_aggregator_fails_its_request_alone(parade: Parade, packed: list[Packed]) -> None:
    parade.fault = RuntimeError("out of memory")
    with pytest.raises(ModelError, match="out of memory"):
        parade.score([packed[:2]])
    assert len(asyncio.run(parade.worker.model.choose(packed)).logits) == len(packed)
    parade.fault = None
    assert parade.score([packed[:2]]).logits == pytest.approx(parade.expected([packed[:2]]), abs=1e-5)
    assert parade.worker.ready


def test_many_documents_are_combined_a_part_a_round(parade: Parade, packed: list[Packed], ahead: int) -> None:
    """A request that comes while the first of five parts is combined waits for the second at most; or for its own batch."""
    shortest = min(packed, key=lambda p: len(p.ids))
    documents = [[shortest] * 16] * 160
    parade.combined.clear()
    parade.open.clear()
    counts = np.full(160, 16, dtype=np.intp)
    aggregation = Aggregation(AGGREGATORS.create({"name": "states"}), counts, parade.combine, CAP)
    large = parade.worker.submit(Job([shortest] * counts.sum(), parade.worker.model.ranker, aggregation))
    wait_for(lambda: bool(parade.combined))
    small = submit(parade.worker, packed[:1])
    served_after: list[int] = []
    small.add_done_callback(lambda _: served_after.append(len(parade.combined)))
    parade.open.set()
    done(small)
    assert done(large)[0].logits == pytest.approx(parade.expected(documents), abs=1e-5)
    assert parade.combined == [(32, 16), (512, 1)] * 5, "each part together, then its passages each for itself"
    assert served_after == [4] or ahead


def test_a_client_that_has_left_does_not_count_in_the_backlog(worker: One, faulty: Faulty, packed: list[Packed]) -> None:
    """A batch is in hand, and the schedule has not heard yet that a client left: a newcomer does not wait for it."""
    faulty.open.clear()
    submit(worker, packed)
    wait_for(lambda: worker.busy_since is not None)
    left = submit(worker, packed)
    before = sum(worker.waiting())
    left.cancel()
    assert sum(worker.waiting()) < before
    faulty.open.set()


def test_a_model_that_comes_later_is_warmed_up_between_the_rounds(
    worker: One, faulty: Faulty, session: Session, pipeline: Pipeline, packed: list[Packed]
) -> None:
    """Whoever waits waits for one run of it."""
    later = Faulty(session)
    later.open.clear()
    added = scorer_of(worker, "later", Graphs(later), shorter(pipeline))
    runs: list[int] = []
    futures = []
    for _ in range(5):
        futures.append(submit(worker, packed))
        futures[-1].add_done_callback(lambda _: runs.append(len(later.shapes)))
    large = submit(worker, packed * 20)
    later.open.set()
    done(*futures, large)
    assert worker.ready
    assert runs[0] < 20, "it is served before the other one is warm"
    added.warmed.result(PATIENCE)
    assert list(dict.fromkeys(later.shapes)) == SHAPES
    scored = worker.submit(Job(packed, added.ranker)).result(PATIENCE)
    assert scored.logits == pytest.approx(logits_alone(session, packed), abs=1e-5)


def test_a_warm_up_that_nobody_waits_for_any_more_ends(worker: One, session: Session, pipeline: Pipeline) -> None:
    later = Faulty(session)
    later.open.clear()
    added = scorer_of(worker, "later", Graphs(later), shorter(pipeline))
    assert added.warmed.cancel()
    later.open.set()
    wait_for(lambda: not worker._warm_ups)
    assert len(later.shapes) <= 1


def test_a_warm_up_that_hangs_beside_requests_is_seen(worker: One, session: Session, pipeline: Pipeline) -> None:
    later = Faulty(session)
    later.open.clear()
    worker.caps = worker.caps._replace(hung_after=0.05)
    added = scorer_of(worker, "later", Graphs(later), shorter(pipeline))
    wait_for(lambda: worker.hung)
    later.open.set()
    added.warmed.result(PATIENCE)
    wait_for(lambda: not worker.hung)
    assert worker.ready


def test_nothing_is_kept_of_a_model_that_is_let_go(worker: One, session: Session, pipeline: Pipeline, packed: list[Packed]) -> None:
    later = Faulty(session)
    added = scorer_of(worker, "later", Graphs(later), shorter(pipeline))
    done(worker.submit(Job(packed, added.ranker)))
    graph = weakref.ref(later)
    del later, added
    wait_for(lambda: graph() is None)
    assert graph() is None
