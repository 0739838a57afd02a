"""Whole episodes: fresh seeds, and service code with a bug planted in it, which is found."""

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.simulation import episode
from benchmarks.simulation.episode import Episode, Report
from benchmarks.simulation.faults import Fault
from benchmarks.simulation.invariants import ViolationError
from benchmarks.simulation.store import PARTLY
from benchmarks.simulation.traffic import Climate, climate
from keyblock.runtime import batching
from service.errors import RequestError
from service.queue import job, schedule
from service.queue.graphs import QueuedGraphs
from service.queue.job import Job, ModelDeadError
from service.queue.worker import Worker
from service.ranking.admission import Admission, Place
from service.ranking.preparation import Threads
from service.ranking.reload import Reloaded, Reloader
from service.store.base import AWAY
from service.store.library import Library
from service.upstream import client
from service.upstream.client import Answer, Upstream

FRESH, EACH = 25, 400  # episodes of a run of these tests, and requests of each
Patch = pytest.MonkeyPatch


def test_what_must_hold_holds_for_fresh_seeds() -> None:
    """A seed that fails is in the message, with the command that repeats it. In CI they are the same each time."""
    first = 0 if "CI" in os.environ else random.SystemRandom().randrange(10**9)
    reports = [Episode(seed, EACH).run() for seed in range(first, first + FRESH)]
    assert sum(report.outcomes.total() for report in reports) == FRESH * EACH


def test_a_seed_repeats_everything() -> None:
    def last() -> tuple[Report, list[str]]:
        one = Episode(11, 100)
        return one.run(), one.checks.trace.lines()

    assert last() == last()


def violation_of(patch: Patch, mutant: Callable[[Patch], None], first: int) -> str:
    """The violation that the first failing episode reports, from this seed on, with a planted bug."""
    mutant(patch)
    for seed in range(first, first + 20):
        try:
            Episode(seed, 300).run()
        except ViolationError as error:
            return str(error)
    return "nothing"


ROOMY = {"max_requests_in_flight": 1024, "max_documents_in_flight": 100_000, "max_bytes_in_flight": 1 << 30}
ROOMY |= {"max_wait_ms": 10_000, "max_backlog_ms": 60_000, "hung_seconds": 60}


def always(patch: Patch, kinds: tuple[str, ...], **about: Any) -> None:
    """Fix the climate and the faults, since the planted bug shows itself rarely in others."""

    def such(random: random.Random) -> Climate:
        drawn = climate(random)
        return replace(drawn, models=("joint",), limits={**drawn.limits, **ROOMY}, **about)

    def these(random: random.Random, now: float, seconds: float) -> list[Fault]:
        return [Fault(kind, at := now + random.random() * seconds, at, 0.0) for kind in kinds]

    patch.setattr(episode, "climate", such)
    patch.setattr(episode, "drawn", these)


def queries_wait(patch: Patch) -> None:
    """The bug that the simulation found first: a query waits for a thread behind others' documents."""
    always(patch, (), char_seconds=1e-6, token_seconds=2e-6, load=1.5, hurried=0.6, threads=2, by_id=0.0)
    patch.setattr(Threads, "run_short", Threads.run)


def answers_again(patch: Patch) -> None:
    """A job that is answered is not over."""
    patch.setattr(Job, "finished", property(lambda self: self.future.cancelled()))


def answers_early(patch: Patch) -> None:
    """The last sequence of a job is not waited for."""
    patch.setattr(Job, "complete", property(lambda self: (self._unscored <= 1 and len(self.lengths) > 1) or not self._unscored))


def forgets_what_failed(patch: Patch) -> None:
    """A batch fails, and nobody is told."""
    patch.setattr(Worker, "_failed", lambda self, run, _error: self.schedule.failed(run, too_large=False))


def forgets_half(patch: Patch) -> None:
    """Of a batch that is too large for the memory only one half is run again."""
    patch.setattr(batching, "halves", lambda batch, halves=batching.halves: halves(batch)[:1])


def starves(patch: Patch) -> None:
    """The oldest has no turns of its own."""
    patch.setattr(schedule, "TURNS_TO_OLDEST", 10**9)


def leaks_bytes(patch: Patch) -> None:
    """Who leaves gives its place back and not its bytes."""

    def leave(self: Place, *_: object) -> None:
        self._add(-self._held.requests, -self._held.documents)
        self._admission.queued(self)

    patch.setattr(Place, "__exit__", leave)


def leaks_seconds(patch: Patch) -> None:
    """What a request was going to cost is counted for ever."""
    patch.setattr(Admission, "queued", lambda *_: None)


def lets_everything_in(patch: Patch) -> None:
    patch.setattr(Admission, "check_bytes", lambda *_: None)


def mixes(patch: Patch) -> None:
    """The outputs of a batch go to its sequences in the wrong order."""
    scored = Worker._scored
    patch.setattr(Worker, "_scored", lambda self, run, fed: scored(self, run, fed._replace(outputs=fed.outputs[::-1])))


def is_late(patch: Patch) -> None:
    """A request in a hurry waits for its job as long as that takes."""
    done = QueuedGraphs._done
    patch.setattr(QueuedGraphs, "_done", lambda self, job, until: done(self, job, None if until is None else until + 0.2))


def acknowledges_too_early(patch: Patch) -> None:
    """Who stores a document is told that it is stored before it is."""

    async def put(self: Library, namespace: str, items: Any) -> None:
        self._writer.submit(self._store.put_many, namespace, items)

    patch.setattr(Library, "put", put)


def renews_with_anothers(patch: Patch) -> None:
    """A stale document is written back with what was prepared of another."""
    always(patch, ("reloads",) * 5, by_id=0.9, cap=512, ids=40, writes=0.8)
    renew = Library.renew

    def shifted(self: Library, namespace: str, renewed: Any, fingerprint: bytes) -> None:
        olds, prepared = [old for old, _ in renewed], [one for _, one in renewed]
        renew(self, namespace, list(zip(olds, prepared[1:] + prepared[:1], strict=True)), fingerprint)

    patch.setattr(Library, "renew", shifted)


def asks_twice(patch: Patch) -> None:
    """Each request to an upstream is sent again, whatever the first said."""
    sent = Upstream._send

    async def again(self: Upstream, body: bytes) -> Answer:
        await sent(self, body)
        return await sent(self, body)

    patch.setattr(Upstream, "_send", again)


def troubles_the_busy(patch: Patch) -> None:
    """An upstream that asked for time is given none."""
    patch.setattr(Upstream, "_check_busy", lambda _: None)


def believes_what_is_missing(patch: Patch) -> None:
    """An upstream's answer that lacks a result is taken for one."""
    patch.setattr(client, "read", lambda *arguments: np.zeros(arguments[2], np.float32))


def waits_for_elsewhere(patch: Patch) -> None:
    """An upstream has as long as it likes."""
    rank = Upstream.rank
    patch.setattr(Upstream, "rank", lambda self, query, passages, until, *more: rank(self, query, passages, until + 0.2, *more))


def acknowledges_what_failed(patch: Patch) -> None:
    """A store's error is no error of a write."""
    put = Library.put

    async def quietly(self: Library, namespace: str, items: Any) -> None:
        with suppress(RequestError):
            await put(self, namespace, items)

    patch.setattr(Library, "put", quietly)


def loses_more_than_the_part(patch: Patch) -> None:
    """Where a part of the store is away, what is asked for after a document of it is taken to be away, too."""
    always(patch, (), by_id=1.0, load=0.3)
    patch.setattr(episode, "drawn", lambda _random, now, seconds: [Fault("store away", now, now + seconds, PARTLY / 2)])
    look_up = Library.look_up

    async def stops(self: Library, namespace: str, ids: Any, *arguments: Any, **named: Any) -> Any:
        found = await look_up(self, namespace, ids, *arguments, **named)
        first = next((n for n, one in enumerate(ids) if found.get(one) is AWAY), len(ids))
        return {one: found[one] if n < first else AWAY for n, one in enumerate(ids) if one in found}

    patch.setattr(Library, "look_up", stops)


def dies_in_silence(patch: Patch) -> None:
    """The model's thread ends, and who waits for it is not told."""
    fail = Job.fail
    patch.setattr(Job, "fail", lambda self, error: None if isinstance(error, ModelDeadError) else fail(self, error))


def is_always_well(patch: Patch) -> None:
    """Health does not see the thread."""
    patch.setattr(Worker, "alive", property(lambda _: True))


def joins_the_reload_in_hand(patch: Patch) -> None:
    """Who asks for a reload while one is under way gets that one, which may have read the files before."""
    after = Reloader._reload_next

    async def reload(self: Any) -> Reloaded:
        if getattr(self, "in_hand", None) is None or self.in_hand.done():
            self.in_hand = self._start_task(after(self))
        return cast(Reloaded, await asyncio.shield(self.in_hand))

    patch.setattr(Reloader, "reload", reload)


def says_it_twice(patch: Patch) -> None:
    """A reload that fails is logged, and once more by asyncio where nobody waits for it any more: the simulation found it."""
    patch.setattr(Reloader, "_done", lambda self, task: self._tasks.discard(task))


def remembers_for_all(patch: Patch) -> None:
    """What one graph has said of a sequence, the graph that is loaded in its place says too."""
    patch.setattr(job, "sequence_key", lambda packed, _: blake2b(packed.ids.data, digest_size=16).digest())


@pytest.mark.parametrize(
    ("mutant", "first", "says"),
    [
        (answers_again, 0, "time does not pass"),
        (answers_early, 0, "a score that is not its own"),
        (mixes, 0, "the logit of another"),
        (forgets_what_failed, 13, "are never answered"),
        (forgets_half, 3, "time does not pass"),
        (starves, 29, "waits for"),
        (leaks_bytes, 0, "nothing is in flight"),
        (leaks_seconds, 0, "a newcomer would wait"),
        (lets_everything_in, 1, "bytes of several requests"),
        (is_late, 4, "after its deadline"),
        (acknowledges_too_early, 1, "a later one was acknowledged"),
        (remembers_for_all, 0, "a score that is not its own"),
        (queries_wait, 0, "after its deadline"),
        (renews_with_anothers, 0, "document ('default', "),
        (dies_in_silence, 13, "is dead, and a request still waits for it"),
        (is_always_well, 30, "is said to be alive"),
        (says_it_twice, 122, "the service stumbles: ReloadError"),
        (joins_the_reload_in_hand, 2, "a reload is answered, and does not serve"),
        (acknowledges_what_failed, 143, "a later one was acknowledged"),
        (asks_twice, 11, "asks the upstream 4 times, of 1 batches"),
        (believes_what_is_missing, 45, "a score that is not its own"),
        (loses_more_than_the_part, 0, "which is not on the part that is away"),
        (waits_for_elsewhere, 6, "for the upstream; 0.3 s is the bound"),
        (troubles_the_busy, 1036, "before it wants to be"),
    ],
)
def test_a_bug_that_is_planted_is_found(mutant: Callable[[Patch], None], first: int, says: str, monkeypatch: Patch) -> None:
    told = violation_of(monkeypatch, mutant, first)
    assert says in told
    assert "again: python -m benchmarks.simulation --seed" in told
