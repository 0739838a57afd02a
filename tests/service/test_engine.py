"""The model's thread: on a real session, and with sessions that fail in every way."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime import batching
from keyblock.runtime.session import Session
from keyblock.tokenization import Tokenizer
from service.engine import ROUND_BATCHES, Engine, EngineDeadError, EngineError, Scored
from service.metrics import TABLE, Metrics
from tests.service.faults import PATIENCE, Faulty, wait_for

CAP = 512


@pytest.fixture
def engine(faulty: Faulty, tokenizer: Tokenizer) -> Iterator[Engine]:
    engine = Engine(faulty, tokenizer, 128, CAP, Metrics())
    engine.start()
    wait_for(lambda: engine.ready)
    faulty.shapes.clear()
    yield engine
    faulty.open.set()
    engine.close()


@pytest.fixture(scope="session")
def packed(pipeline: Pipeline) -> list[Packed]:
    """Forty sequences of 5 to 128 tokens."""
    query = pipeline.prepare_query("which river flooded the bridge")
    texts = [f"number {n}: " + "the river flooded the old stone bridge. " * (n % 20) for n in range(40)]
    return [pipeline.select(query, document).packed for document in pipeline.prepare_documents(texts)]


def alone(session: Session, packed: Sequence[Packed]) -> NDArray[np.float32]:
    """The obvious version: one sequence at a time, without padding."""
    logits = []
    for sequence in packed:
        ids = sequence.ids[None].astype(np.int64)
        types = (np.arange(ids.shape[1]) >= sequence.split).astype(np.int64)[None]
        logits.append(session.score(ids, types, np.ones_like(ids))[0])
    return np.asarray(logits)


def done(*futures: Future[Scored]) -> list[Scored]:
    return [future.result(PATIENCE) for future in futures]


def count(engine: Engine, key: str, **labels: str) -> float:
    return engine._metrics.registry.get_sample_value(TABLE[key].name, labels) or 0.0


def test_scores_equal_one_at_a_time(engine: Engine, session: Session, packed: list[Packed]) -> None:
    (scored,) = done(engine.submit(packed))
    assert scored.logits == pytest.approx(alone(session, packed), abs=1e-5)
    assert scored.queue_seconds >= 0
    assert scored.model_seconds > 0


def test_concurrent_requests_share_batches_and_get_their_own_scores(
    engine: Engine, faulty: Faulty, session: Session, packed: list[Packed]
) -> None:
    alike = sorted(packed, key=lambda p: len(p.ids))[-8:]  # all in the longest bucket: four fill a batch
    requests = [alike[:2], alike[2:4], alike[4:6], alike[6:]]
    faulty.open.clear()
    first = engine.submit(packed[:1])  # keeps the thread busy while the others come in
    wait_for(lambda: not engine._jobs or not engine._jobs[0].n_waiting)
    futures = [engine.submit(request) for request in requests]
    faulty.open.set()
    done(first)
    for request, scored in zip(requests, done(*futures), strict=True):
        assert scored.logits == pytest.approx(alone(session, request), abs=1e-5)
    assert faulty.shapes[1:] == [(4, 128), (4, 128)]


def test_a_small_request_waits_for_a_round_at_most(engine: Engine, faulty: Faulty, packed: list[Packed]) -> None:
    longest = max(packed, key=lambda p: len(p.ids))
    faulty.open.clear()
    large = engine.submit([longest] * 400)
    wait_for(lambda: bool(engine._jobs) and engine._jobs[0].n_waiting < 400)
    small = engine.submit(packed[:2])
    batches_before = []
    small.add_done_callback(lambda _: batches_before.append(len(faulty.shapes)))
    faulty.open.set()
    done(small, large)
    assert batches_before[0] <= 2 * (ROUND_BATCHES + 2)  # the round in hand, and the one it is in
    assert len(faulty.shapes) >= 100


def test_only_known_shapes_are_run(engine: Engine, faulty: Faulty, packed: list[Packed]) -> None:
    done(*(engine.submit(packed[start:]) for start in range(0, 40, 7)))
    assert set(faulty.shapes) <= set(batching.shapes(128, CAP))


def test_every_shape_is_warmed_up_before_it_is_ready(faulty: Faulty, tokenizer: Tokenizer, packed: list[Packed]) -> None:
    metrics = Metrics()
    engine = Engine(faulty, tokenizer, 128, CAP, metrics)
    faulty.open.clear()
    engine.start()
    assert (engine.alive, engine.ready) == (True, False)
    early = engine.submit(packed[:3])  # waits for the warm-up
    faulty.open.set()
    done(early)
    assert engine.ready
    assert faulty.shapes[: len(batching.shapes(128, CAP))] == batching.shapes(128, CAP)
    engine.close()


def test_an_exception_fails_its_batch_and_the_engine_goes_on(
    engine: Engine, faulty: Faulty, session: Session, packed: list[Packed]
) -> None:
    by_length = sorted(packed, key=lambda p: len(p.ids))
    short, long = by_length[:3], by_length[-3:]
    faulty.fault, faulty.only_with = RuntimeError("the device caught fire"), int(long[0].ids[-2])
    faulty.only_with = next(int(token) for token in long[0].ids if all(token not in p.ids for p in short))
    hit, spared = engine.submit(long), engine.submit(short)
    with pytest.raises(EngineError, match="caught fire"):
        hit.result(PATIENCE)
    assert done(spared)[0].logits == pytest.approx(alone(session, short), abs=1e-5)
    faulty.fault = None
    assert done(engine.submit(long))[0].logits == pytest.approx(alone(session, long), abs=1e-5)
    assert engine.ready
    assert count(engine, "batches", outcome="failed") == 1


def test_a_dead_thread_fails_what_waits_and_is_not_ready(faulty: Faulty, tokenizer: Tokenizer, packed: list[Packed]) -> None:
    engine = Engine(faulty, tokenizer, 128, CAP, Metrics())
    engine.start()
    wait_for(lambda: engine.ready)
    faulty.open.clear()
    pending = [engine.submit(packed), engine.submit(packed[:3])]
    faulty.fault = SystemExit("the thread is ended")
    faulty.open.set()
    for future in pending:
        with pytest.raises(EngineDeadError, match="before this request was scored"):
            future.result(PATIENCE)
    wait_for(lambda: not engine.alive)
    assert not engine.ready
    with pytest.raises(EngineDeadError, match="not running"):
        engine.submit(packed)
    engine.close()


def test_a_failing_warm_up_leaves_it_dead_not_hanging(faulty: Faulty, tokenizer: Tokenizer) -> None:
    faulty.fault = RuntimeError("no memory")
    engine = Engine(faulty, tokenizer, 128, CAP, Metrics())
    engine.start()
    wait_for(lambda: not engine.alive)
    assert not engine.ready
    engine.close()


def test_cancelled_sequences_are_dropped_before_the_next_round(engine: Engine, faulty: Faulty, packed: list[Packed]) -> None:
    longest = max(packed, key=lambda p: len(p.ids))
    faulty.open.clear()
    large = engine.submit([longest] * 400)
    wait_for(lambda: bool(engine._jobs) and engine._jobs[0].n_waiting < 400)
    assert large.cancel()
    faulty.open.set()
    done(engine.submit(packed[:2]))
    assert len(faulty.shapes) <= ROUND_BATCHES + 2
    assert count(engine, "queued") == 0


def test_cancelling_the_await_cancels_the_job(engine: Engine, faulty: Faulty, packed: list[Packed]) -> None:
    async def work() -> None:
        faulty.open.clear()
        task = asyncio.create_task(engine.score(packed))
        await asyncio.sleep(0.01)
        (job,) = engine._jobs
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert job.over
        faulty.open.set()
        assert len((await engine.score(packed[:4])).logits) == 4

    asyncio.run(work())


def test_nothing_to_score_needs_no_thread(faulty: Faulty, tokenizer: Tokenizer) -> None:
    engine = Engine(faulty, tokenizer, 128, CAP, Metrics())
    assert len(asyncio.run(engine.score([])).logits) == 0


def test_closing_fails_what_waits(engine: Engine, faulty: Faulty, packed: list[Packed]) -> None:
    longest = max(packed, key=lambda p: len(p.ids))
    faulty.open.clear()
    future = engine.submit([longest] * 400)
    wait_for(lambda: bool(engine._jobs) and engine._jobs[0].n_waiting < 400)
    closing = threading.Thread(target=engine.close)
    closing.start()
    wait_for(lambda: engine._closing)
    faulty.open.set()
    closing.join(PATIENCE)
    with pytest.raises(EngineDeadError):
        future.result(PATIENCE)
    assert not engine.alive


def test_tokens_and_padding_are_counted(engine: Engine, faulty: Faulty, packed: list[Packed]) -> None:
    done(engine.submit(packed))
    n_tokens = sum(len(p.ids) for p in packed)
    assert count(engine, "tokens") == n_tokens
    assert count(engine, "padding") == sum(rows * length for rows, length in faulty.shapes) - n_tokens
    assert count(engine, "batches", outcome="ok") == len(faulty.shapes)
