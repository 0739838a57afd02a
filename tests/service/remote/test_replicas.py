"""What a replica of preparation knows of the model's, and asks of them; without Ray."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from benchmarks.simulation.machine import SimulatedMachine
from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.packing import Packed
from keyblock.ranking.order import UNREAD
from keyblock.ranking.request import AnswerOptions
from service.app import create_app
from service.call import Call, Documents
from service.queue.graphs import Priority
from service.queue.job import ModelDeadError, ModelError, Scored
from service.ranking.loading import LoadedBundle
from service.ranking.ranker import Ranker
from service.remote.holder import Holder
from service.remote.replicas import FRESH_SECONDS, READY_SECONDS, GoneError, RemoteScorer, Replicas
from service.remote.wire import NO_BLOCKS, Described, Named, Reply, Report, ScoreRequest, named, read, written
from service.settings import Settings
from tests.service.conftest import warm
from tests.service.test_kinds import DOCUMENTS, QUERY

NAME = Named("/bundles/mine", "0" * 64)
ASKED = ScoreRequest(written([[Packed(np.arange(10, dtype=np.int32), 4, NO_BLOCKS)]]))
SCORED = Scored(np.array([1.5], np.float32), 0.0, 0.25)


class Time:
    """A clock that tests set."""

    now = 100.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr("time.perf_counter", lambda: made.now)
    return made


def report(*waiting: float, replica: str = "a", pace: float = 0.0) -> Report:
    return Report(replica, np.array(waiting, np.float32), {NAME: pace})


def answering(*replies: Reply | Exception) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Replicas that give these replies, one after the other."""
    left = iter(replies)

    async def ask(_method: str, *_arguments: Any) -> Any:
        reply = next(left)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return ask


def score(replicas: Replicas, until: float | None = None) -> Scored | None:
    return asyncio.run(replicas.score(NAME, ASKED, until))


def test_another_replica_answers_where_one_is_gone_or_dead() -> None:
    replies = [GoneError(), Reply(report(), None, "not running", elsewhere=True), Reply(report(), SCORED)]
    scored = score(Replicas(answering(*replies), 60.0))
    assert scored is not None
    assert scored.logits.tolist() == [1.5]
    assert scored.model_seconds == 0.25


def test_when_all_are_gone_the_service_is_dead() -> None:
    with pytest.raises(ModelDeadError, match="no replica of the model answers"):
        score(Replicas(answering(*[GoneError()] * 9), 60.0))


def test_a_batch_that_failed_is_not_sent_again() -> None:
    with pytest.raises(ModelError, match="the model failed"):
        score(Replicas(answering(Reply(report(), None, "the model failed on this request: no memory")), 60.0))


@pytest.mark.parametrize("how", ["deadline", "client", "dead"])
def test_a_cancelled_request_cancels_the_call(how: str, time: Time) -> None:
    cancelled: list[str] = []

    async def ask(method: str, *_: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(method)
            raise

    async def run() -> Scored | None:
        replicas = Replicas(ask, 0.0 if how == "dead" else 60.0)
        asking = asyncio.create_task(replicas.score(NAME, ASKED, time.now + 0.01 if how == "deadline" else None))
        await asyncio.sleep(0.02)
        time.now += 0.02
        if how == "client":
            asking.cancel()
        try:
            return await asking
        except (asyncio.CancelledError, ModelDeadError):
            return SCORED
        finally:
            await asyncio.sleep(0)

    assert asyncio.run(run()) is (None if how == "deadline" else SCORED)
    assert cancelled == ([] if how == "dead" else ["score"])


def test_a_deadline_is_sent_as_the_seconds_that_are_left(time: Time) -> None:
    """Two machines share no clock. What the way took before is kept for the way."""
    told: list[float] = []

    async def ask(_: str, __: Named, asked: ScoreRequest) -> Reply:
        assert asked.seconds is not None
        told.append(asked.seconds)
        time.now += 1.0  # the replica says 0.25 of it was the model's
        return Reply(report(), SCORED)

    replicas = Replicas(ask, 60.0)
    for _ in range(2):
        score(replicas, time.now + 10.0)
    assert told == [10.0, pytest.approx(9.25)]


def test_the_backlog_is_what_replicas_report_or_what_this_process_has_sent(time: Time) -> None:
    """Shares of 2 s: replica a has jobs of 1 and 4 s, b one of 0.5 s: 1 + 2 and 0.5, on average 1.75 s."""
    replicas = Replicas(answering(), 60.0)
    assert replicas.backlog()(2.0) == 0.0
    replicas.record(report(1.0, 4.0, replica="a"))
    replicas.record(report(0.5, replica="b"))
    assert replicas.backlog()(2.0) == 1.75
    time.now += FRESH_SECONDS
    assert replicas.backlog()(2.0) == 0.0, "an old report says nothing"


def test_a_call_counts_as_waiting_until_it_is_answered() -> None:
    """10 tokens of 0.3 s each."""
    seen: list[float] = []

    async def ask(*_: Any) -> Reply:
        seen.extend([replicas.backlog()(99.0), replicas.backlog()(2.0)])
        return Reply(report(), SCORED)

    replicas = Replicas(ask, 60.0)
    replicas.record(report(pace=0.3))
    score(replicas)
    assert seen == [pytest.approx(3.0), 2.0]
    assert replicas.backlog()(99.0) == 0.0


def test_silence_is_unready_and_then_dead(time: Time) -> None:
    replicas = Replicas(answering(), 60.0)
    replicas.record(report()._replace(ready=False))
    assert (replicas.ready, replicas.alive) == (False, True), "it is there, and not warm yet"
    replicas.record(report())
    assert (replicas.ready, replicas.alive) == (True, True)
    time.now += READY_SECONDS
    assert (replicas.ready, replicas.alive) == (False, True)
    time.now += 60.0
    assert (replicas.ready, replicas.alive, replicas.hung) == (False, False, False)
    replicas.record(report())
    assert (replicas.ready, replicas.alive) == (True, True)


def test_a_replica_that_dies_or_has_another_version_does_not_make_the_service_unready() -> None:
    """It gets every second request for a report."""
    turns = itertools.cycle(["reports", "hangs", "reports", "fails"])

    async def ask(_method: str) -> Report:
        turn = next(turns)
        if turn == "hangs":
            await asyncio.Event().wait()
        if turn == "fails":
            raise TypeError("a report of another version")
        return report()

    async def listened() -> set[bool]:
        replicas, seen = Replicas(ask, 60.0), set[bool]()
        replicas.listen()
        for _ in range(600):
            await asyncio.sleep(0.1)
            seen.add(replicas.ready)
        await replicas.close()
        return seen

    machine = SimulatedMachine(Random(1))
    with machine.standing_in():
        listening = machine.loop.create_task(listened())
        while machine.loop.step():
            pass
    assert listening.result() == {True}


def test_a_replica_is_told_in_which_order_to_score_and_whether_to_mark() -> None:
    told: list[ScoreRequest] = []

    async def ask(_: str, __: Named, asked: ScoreRequest) -> Reply:
        told.append(asked)
        return Reply(report(), SCORED)

    bundle: Any = SimpleNamespace(path=Path("/bundles/mine"), manifest=PipelineConfig(), graph=SimpleNamespace(marks=True))
    scorer = RemoteScorer(Replicas(ask, 60.0), bundle, Described({}, {}, fell_back=False))
    sequences = read(ASKED.sequences)[0]
    some = [UNREAD._replace(sequences=sequences), UNREAD]
    for spans in (False, True):
        call = Call("q", Documents(["", ""], ["", ""], [None, None]), asked=AnswerOptions(spans=spans))
        asyncio.run(scorer.score(call, some, Priority(None, [1, 0], 3)))
    asyncio.run(scorer.choose(sequences, Priority(level=2)))
    assert [(one.order, one.level, one.marks, one.blocks) for one in told] == [
        ([1, 0], 3, False, False),
        ([1, 0], 3, True, False),
        (None, 2, False, True),
    ]


@pytest.fixture
def both(settings: Settings, bundle_of: Callable[[str], Path]) -> Iterator[tuple[TestClient, TestClient]]:
    """A bundle in a service of its own, and in one whose scorer asks a replica of the model beside it."""
    chosen = settings.model_copy(update={"bundle": (bundle_of("parade by binb2"),)})
    holder = Holder(chosen)
    holder.warm()

    async def ask(method: str, *arguments: Any) -> Any:
        answer = getattr(holder, method)(*arguments)
        return await answer if asyncio.iscoroutine(answer) else answer

    bundle = load_bundle(chosen.bundle[0])
    replicas = Replicas(ask, 60.0)
    described = asyncio.run(replicas.describe(named(bundle)))
    opened = LoadedBundle(bundle, elsewhere=RemoteScorer(replicas, bundle, described))
    with warm(chosen) as service, TestClient(create_app(chosen, Ranker(chosen, [opened]))) as remote:
        yield service, remote
    holder.close()


def test_every_answer_is_the_service_s(both: tuple[TestClient, TestClient]) -> None:
    """With a selector that asks the model, a learned aggregator, priorities and deadlines that are long enough."""
    for more in ({}, {"deadline_ms": 60_000, "priority": 3}, {"max_tokens_per_doc": 64, "return_blocks": True}):
        body = {"query": QUERY, "documents": DOCUMENTS, **more}
        expected, answer = (client.post("/rerank", json=body).json() for client in both)
        for one, other in zip(answer["results"], expected["results"], strict=True):
            assert one.pop("relevance_score") == pytest.approx(other.pop("relevance_score"), abs=1e-4)
            assert one == other
        assert answer["meta"]["degraded"] is expected["meta"]["degraded"]
    service, remote = (client.get("/info").json() for client in both)
    assert remote == service
