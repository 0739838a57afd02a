"""The model's thread: a graph that stops before each batch until a test lets it go on, and that fails in every way."""

import asyncio
import random
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.aggregation import AGGREGATORS
from keyblock.packing import Packed
from keyblock.runtime import batching
from keyblock.runtime.batching import BatchTooLargeError
from service.queue.graphs import Priority
from service.queue.job import Aggregation, Job, ModelDeadError, ModelError, Scored
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, Ints, wait_for
from tests.service.queue.conftest import CAP, FULL, LONGEST, Make, Stopping, expected, sequence

SHAPES = batching.shapes(batching.capped(LONGEST, CAP))


def drawn(draw: random.Random, number: int) -> list[Packed]:
    return [sequence(draw.randrange(2, 9999), draw.randint(5, LONGEST)) for _ in range(number)]


def logits(future: Future[Scored]) -> list[float]:
    return future.result(PATIENCE).logits.tolist()


def test_every_shape_is_warmed_up_before_it_is_ready(make_cold: Make, ahead: int) -> None:
    graph = Stopping()
    graph.stop()
    held = make_cold(ahead, graph)
    assert (held.worker.alive, held.worker.ready) == (True, False)
    early = held.submit([sequence(2)])  # waits for the warm-up
    graph.go_on()
    assert logits(early) == [256.0]
    assert held.worker.ready
    assert list(dict.fromkeys(graph.shapes)) == SHAPES
    assert held.model.pace.seconds > 0


def test_a_failing_warm_up_leaves_it_dead_not_hanging(make_cold: Make, ahead: int) -> None:
    graph = Stopping()
    graph.faults[1] = RuntimeError("no memory")
    held = make_cold(ahead, graph)
    wait_for(lambda: not held.worker.alive)
    assert not held.worker.ready


def test_while_a_batch_is_computed_the_next_is_ready_and_the_last_is_given_out(make_held: Make) -> None:
    held = make_held()
    first, second, third, fourth = held.full(1, 2, 3, 4)
    held.in_flight(2, begun=1)
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


@pytest.mark.parametrize("learned", [False, True], ids=["each", "learned"])
@pytest.mark.parametrize("seed", range(2))
def test_scores_and_decisions_are_those_of_one_in_flight(make_held: Make, seed: int, learned: bool) -> None:
    """Jobs of many lengths and priorities, all handed in before the first batch ends: the same batches in the same order."""

    def outcome(ahead: int) -> tuple[list[list[float]], list[bytes]]:
        draw = random.Random(seed)
        held = make_held(ahead, learned=learned)
        blocker = held.submit([sequence(1)] * FULL)
        held.in_flight(1, begun=1)
        packed = [drawn(draw, draw.randint(1, 30)) for _ in range(12)]
        jobs = held.at_once(*(Job(one, held.model.ranker, priority=number % 3) for number, one in enumerate(packed)))
        held.graph.go_on()
        found = [logits(job.future) for job in jobs]
        assert found == [expected(one) for one in packed]
        blocker.result(PATIENCE)
        assert set(held.graph.shapes) <= set(SHAPES), "only known shapes are run"
        return found, [ids.tobytes() for ids in held.graph.batches]

    assert outcome(0) == outcome(1)


def test_tokens_and_padding_are_counted(make_held: Make, ahead: int) -> None:
    held, packed = make_held(ahead), drawn(random.Random(0), 40)
    held.graph.go_on()
    scored = held.submit(packed).result(PATIENCE)
    assert scored.queue_seconds >= 0
    assert scored.model_seconds > 0
    n_tokens = sum(len(one.ids) for one in packed)
    assert held.count("tokens") == n_tokens
    assert held.count("padding") == sum(ids.size for ids in held.graph.batches) - n_tokens
    assert held.count("batches", outcome="ok") == len(held.graph.batches)


def test_an_exception_fails_its_request_and_the_worker_goes_on(make_held: Make, ahead: int) -> None:
    held = make_held(ahead)
    held.graph.faults[2] = RuntimeError("the device caught fire")
    held.full(1)
    held.in_flight(1, begun=1)
    hit, other = held.at_once(*(Job([sequence(token)] * 2, held.model.ranker) for token in (2, 3)))
    held.graph.go_on()
    with pytest.raises(ModelError, match="caught fire"):
        hit.future.result(PATIENCE)
    assert logits(other.future) == [384.0] * 2, "though it was in the same batch"
    held.graph.faults.clear()
    assert logits(held.submit([sequence(2)])) == [256.0]
    assert held.worker.ready
    assert [held.count("batches", outcome=outcome) for outcome in ("failed", "split")] == [1, 1]


def test_a_batch_too_large_for_the_memory_is_split_and_not_tried_again(make_held: Make, ahead: int) -> None:
    """Even where all of it is one request's."""
    held = make_held(ahead)
    held.graph.faults[2] = BatchTooLargeError("failed to allocate")
    held.graph.go_on()
    assert logits(held.submit([sequence(2)] * 8)) == [256.0] * 8
    assert held.count("batches", outcome="failed") == 0
    split, tried = held.count("batches", outcome="split"), len(held.graph.batches)
    assert split > 0
    assert held.model.ranker.most_rows[LONGEST] == 1
    assert logits(held.submit([sequence(2)] * 8)) == [256.0] * 8
    assert held.count("batches", outcome="split") == split
    assert len(held.graph.batches) == tried + 8


def test_when_time_is_up_the_first_in_order_are_scored(make_held: Make, ahead: int, clock: Leaping) -> None:
    """The model stops after its first round; it would go on later, but then time is up."""
    held, packed = make_held(ahead), drawn(random.Random(0), 40)
    held.graph.stopped = clock.leap
    held.graph.go(6)
    priority = Priority(time.perf_counter() + FAR, list(range(39, -1, -1)))
    known = asyncio.run(held.model.score_documents([[one] for one in packed], priority)).logits
    scored = np.flatnonzero(known > -np.inf)
    assert 0 < len(scored) < 40
    assert known[scored].tolist() == expected([packed[n] for n in scored])
    assert scored.max() == 39
    held.graph.go_on()
    wait_for(lambda: not sum(held.worker.waiting()))
    assert logits(held.submit(packed)) == expected(packed)


def test_when_time_is_up_from_the_start_nothing_is_run(make_held: Make) -> None:
    held, packed = make_held(), [sequence(1), sequence(2)]
    priority = Priority(time.perf_counter() - 1, [0])
    assert asyncio.run(held.model.score_documents([packed, []], priority)).logits.tolist() == [-np.inf, -np.inf]
    assert asyncio.run(held.model.choose(packed, priority)).logits.tolist() == [-np.inf, -np.inf]
    job = Job(packed, held.model.ranker, until=time.perf_counter() - 1)
    with pytest.raises(CancelledError):
        held.worker.submit(job).result(PATIENCE)
    assert job.known().logits.tolist() == [-np.inf] * 2
    assert held.graph.batches == []


def test_many_documents_are_combined_a_part_a_round(make_held: Make, ahead: int) -> None:
    """A request that comes while the first of five parts is combined waits for the second at most; or for its own batch."""
    held, counts = make_held(ahead, learned=True), np.full(160, 16, dtype=np.intp)
    held.combined.clear()
    held.may_combine.clear()
    held.graph.go_on()
    aggregation = Aggregation(AGGREGATORS.create({"name": "states"}), counts, held.combine, CAP)
    large = held.submit([sequence(number // 16, 10) for number in range(counts.sum())], aggregation=aggregation)
    wait_for(lambda: bool(held.combined))
    served_after: list[int] = []
    small = held.submit([sequence(1)])
    small.add_done_callback(lambda _: served_after.append(len(held.combined)))
    held.may_combine.set()
    small.result(PATIENCE)
    assert logits(large) == [10.0 * document % 1000 for document in range(160)]
    shapes = [shape for shape, _ in held.combined]
    assert shapes == [(32, 16), (512, 1)] * 5, "each part together, then its passages each for itself"
    assert served_after == [4] or ahead


def test_a_client_that_has_left_does_not_count_in_the_backlog(make_held: Make, ahead: int) -> None:
    """A batch is in hand, and the schedule has not heard yet that a client left: a newcomer does not wait for it."""
    held = make_held(ahead)
    held.full(1)
    held.in_flight(1, begun=1)
    (left,) = held.full(2)
    before = sum(held.worker.waiting())
    left.cancel()
    assert sum(held.worker.waiting()) < before


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
    held = make_held(1, learned=True)
    assert (held.graph.threads, {thread for _, thread in held.combined}) == ({"device"}, {"model"})
    held.graph.go_on()
    asyncio.run(held.model.score_documents([[sequence(1)]]))
    assert (held.graph.threads, {thread for _, thread in held.combined}) == ({"device"}, {"model"})


def test_one_model_computes_at_a_time_whichever_decide_ahead(make_held: Make) -> None:
    """Later models come, one to run ahead of and one not: they are warmed up, and run, when the device is done."""
    held = make_held()
    later, on_cpu = Stopping(), Stopping()
    beside: list[int] = []
    later.meanwhile = on_cpu.meanwhile = lambda: beside.append(held.graph.now)

    def with_one_in_flight(work: Callable[[], Any]) -> Any:
        held.graph.stop()
        held.full(1)
        held.in_flight(1, begun=1)
        done = work()
        time.sleep(0.02)  # enough to do it too early
        held.graph.go_on()
        return done

    cpu = with_one_in_flight(lambda: held.add("cpu", on_cpu))
    cpu.warmed.result(PATIENCE)
    added = with_one_in_flight(lambda: held.add("later", later, ahead=1))
    added.warmed.result(PATIENCE)
    first = with_one_in_flight(lambda: held.submit([sequence(3)] * FULL, cpu))
    assert logits(first) == [384] * FULL
    mixed = [held.submit([sequence(token)] * FULL, model) for token in range(8) for model in (added, cpu, held.model)]
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


def test_a_model_that_comes_later_is_warmed_up_between_the_rounds(make_held: Make, ahead: int) -> None:
    """Whoever waits waits for one run of it."""
    held, later = make_held(ahead), Stopping()
    later.stop()
    held.graph.go_on()
    added = held.add("later", later)
    runs: list[int] = []
    futures = []
    for token in range(5):
        futures.append(held.submit([sequence(token)] * 40))
        futures[-1].add_done_callback(lambda _: runs.append(len(later.batches)))
    later.go_on()
    assert [logits(future)[0] for future in futures] == [128 * token for token in range(5)]
    assert held.worker.ready
    assert runs[0] < 20, "it is served before the other one is warm"
    added.warmed.result(PATIENCE)
    assert list(dict.fromkeys(later.shapes)) == SHAPES
    assert logits(held.submit([sequence(3)], added)) == [384]


def test_nothing_is_kept_of_a_model_that_is_let_go(make_held: Make) -> None:
    held, later = make_held(), Stopping()
    held.graph.go_on()
    added = held.add("later", later)
    added.warmed.result(PATIENCE)
    assert logits(held.submit([sequence(3)], added)) == [384]
    graph = weakref.ref(later)
    del later, added
    wait_for(lambda: graph() is None)
    assert held.worker.ready


def test_a_warm_up_that_nobody_waits_for_any_more_ends(make_held: Make, ahead: int) -> None:
    held, later = make_held(ahead), Stopping()
    later.stop()
    assert held.add("later", later).warmed.cancel()
    later.go_on()
    wait_for(lambda: not held.worker._warm_ups)
    assert len(later.batches) <= 1


def test_a_warm_up_that_hangs_beside_requests_is_seen(make_held: Make, ahead: int) -> None:
    held, later = make_held(ahead), Stopping()
    later.stop()
    held.worker.caps = held.worker.caps._replace(hung_after=0.05)
    added = held.add("later", later)
    wait_for(lambda: held.worker.hung)
    later.go_on()
    added.warmed.result(PATIENCE)
    wait_for(lambda: not held.worker.hung)
    assert held.worker.ready
