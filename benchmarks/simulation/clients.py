"""Simulated clients: they send requests through the service to the models, and check each answer."""

import asyncio
from asyncio import CancelledError

import numpy as np

from benchmarks.simulation.faults import DEVICE, ENDS, SLOW, STORE, UPSTREAM, Faults
from benchmarks.simulation.invariants import Checks, ViolationError
from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import UPSTREAM as ELSEWHERE
from benchmarks.simulation.ranker import Text, digits, document
from benchmarks.simulation.service import Service
from benchmarks.simulation.store import may_be_lost
from benchmarks.simulation.traffic import Ask
from benchmarks.simulation.upstream import SimulatedUpstream
from keyblock.ranking.answer import Outcome
from service.call import ById, Call, Documents
from service.errors import RequestError
from service.queue.job import ModelDeadError, ModelError
from service.ranking.admission import Place
from service.ranking.model import PROMISED_SECONDS, Model
from service.ranking.ranker import Ranker, dead_error
from service.ranking.reload import ReloadError
from service.store.base import Item
from service.store.codec import StoredDocument, encode, pack_text
from service.telemetry.account import CURRENT_ID, Stages

NAMESPACE = "default"
PIECE_SECONDS, BYTE_SECONDS = 0.002, 1e-9


class Clients:
    """Send requests and check the answers.

    Args:
        machine: provides the clock.
        service: the service under test.
        checks: the invariants.
        faults: faults that may cause an error.
        upstream: reranker that the service calls for some requests.

    Attributes:
        in_flight: tasks of requests that are admitted, or soon will be.
    """

    def __init__(
        self, machine: SimulatedMachine, service: Service, checks: Checks, faults: Faults, upstream: SimulatedUpstream
    ) -> None:
        self.in_flight: set[asyncio.Task[None]] = set()
        self._crowded = float("-inf")  # when the upstream was last late only because of the number of requests
        self._machine, self._service, self._checks, self._faults, self._upstream = machine, service, checks, faults, upstream

    async def exchange(self, ask: Ask) -> None:
        """Handle a request from its head to the end of its answer, as `service.http.endpoint.Exchange` does."""
        checks, number, ranker = self._checks, ask.number, self._service.ranker
        if not self._service.listens:
            checks.leaves(number, "refused: nobody listens")
            return
        CURRENT_ID.set(str(number))
        try:
            outcome = await self._exchanged(ask, ranker)
        except Exception as error:
            checks.problem = error  # report this error, not the request that then stays in flight
            raise
        if not outcome.startswith("refused"):
            checks.trace.add("ends", number, outcome)
        checks.leaves(number, outcome)

    async def _exchanged(self, ask: Ask, ranker: Ranker) -> str:
        """Handle a request. Returns how it ended."""
        came = self._machine.now()
        try:
            with ranker.enter(ask.bytes) as place:
                self._checks.enters(ask.number)
                await self._received(ask, place)
                await self._answered(ask, place, ranker)
                await asyncio.sleep(ask.answer_bytes * BYTE_SECONDS)
        except RequestError as error:
            return self._refused(ask, error, came)
        except ModelDeadError:
            return self._refused(ask, dead_error(), came)
        except ModelError:
            return self._failed(ask, came)
        except CancelledError:
            return "gone" if self._service.listens else "ended: 503"
        return "answered"

    async def _received(self, ask: Ask, place: Place) -> None:
        """Receive the body in pieces; the request is in flight once it is there."""
        for piece in range(1, ask.pieces + 1):
            if ask.pieces > 1:
                await asyncio.sleep(PIECE_SECONDS)
            n_bytes = ask.bytes * piece // ask.pieces
            place.set_bytes(n_bytes)
            self._checks.receives(ask.number, n_bytes)
        place.begin()
        self._checks.begins(ask.number)

    async def _answered(self, ask: Ask, place: Place, ranker: Ranker) -> None:
        machine, checks = self._machine, self._checks
        stages = Stages(ranker.metrics)
        call = _call(ask)
        await ranker.off_loop(lambda: machine.spend(ask.bytes * BYTE_SECONDS), large=False)
        model = ranker.models.chosen(call, strict=False)
        began = machine.now()
        checks.trace.add("asks", ask.number, ask.model, f"documents={len(call.documents)}", f"deadline={ask.deadline}")
        outcome = (await model.score(call, stages, place)).step.outcome
        if ask.deadline is not None:
            checks.in_time(ask.number, machine.now() - stages.began - ask.deadline)
        waited = sum(one.end - one.start for one in stages.intervals if one.stage in ("queue", model.scorer.stage))
        self._check(ask, call, model, outcome, began, waited)
        place.set_answer(ask.answer_bytes)
        checks.answers(ask.number, ask.answer_bytes)

    def _check(self, ask: Ask, call: Call, model: Model, outcome: Outcome, began: float, waited: float) -> None:
        """Check that each document has its own logit, or no logit if that is allowed."""
        logits = outcome.scores.logits.tolist()
        if len(logits) != len(call.documents):
            raise ViolationError(f"request {ask.number} has {len(call.documents)} documents, and {len(logits)} logits")
        if call.documents.by_id.away and not self._faults.between(STORE, began):
            raise ViolationError(f"request {ask.number} misses documents of a store that is whole")
        if strangers := [
            one for n, one in call.documents.by_id.ids.items() if n in call.documents.by_id.away and not may_be_lost(one)
        ]:
            raise ViolationError(f"request {ask.number} misses document {strangers[0]}, which is not on the part that is away")
        excused = ask.deadline is not None or self._elsewhere(ask, model, outcome, began, waited)
        says = model.bundle.pipeline.says
        for n, (key, one) in enumerate(zip(ask.keys or self._keys(call, began), logits, strict=True)):
            if one == -np.inf:
                if key and not excused:
                    raise ViolationError(f"request {ask.number} has time, and its document {n} has no score")
            elif one != says(ask.query, key):
                raise ViolationError(f"request {ask.number} has for document {n} ({key}) a score that is not its own: {one}")

    def _elsewhere(self, ask: Ask, model: Model, outcome: Outcome, began: float, waited: float) -> bool:
        """Whether the upstream is the reason for missing scores. Checks its number of calls, its time and its reason."""
        if model.name != ELSEWHERE:
            return False
        problem, settings = outcome.scores.problem, self._service.settings
        most, batches = settings.upstream_timeout_ms / 1000, -(-len(outcome.candidates) // settings.upstream_batch)
        if (times := self._upstream.calls[str(ask.number)]) > batches * (settings.upstream_retries + 1):
            raise ViolationError(f"request {ask.number} asks the upstream {times} times, of {batches} batches")
        if waited > most + PROMISED_SECONDS:
            raise ViolationError(f"request {ask.number} waits {waited:.3f} s for the upstream; {most} s is the bound")
        if most < 1.0 and waited > 0.99 * most:  # batches of other requests can use up so short a time without a fault
            self._crowded = began
        since = began - most - 60.0  # the service does not call it for a while afterwards
        if problem and self._crowded < since and not self._faults.between(UPSTREAM, since):
            raise ViolationError(f"request {ask.number} is not scored for no reason: {problem}")
        return bool(problem)

    def _keys(self, call: Call, began: float) -> list[int]:
        """The numbers of documents by id, 0 for missing ones. Checks that the store could return them."""
        by_id, keys = call.documents.by_id, []
        for number, identity in by_id.ids.items():
            one = by_id.prepared(number)
            keys.append(0 if one is None else int(one.token_ids[0]))
            if one is not None or number in by_id.unknown:
                self._checks.looked_up((NAMESPACE, identity), keys[-1], began)
        return keys

    def _refused(self, ask: Ask, error: RequestError, came: float) -> str:
        if error.status == 429 or (error.status == 422 and ask.ids):
            return f"refused: {error.status}"
        if error.status == 503:
            if not self._service.ranker.worker.ready and self._faults.between((*ENDS, SLOW), 0.0):
                return "refused: 503"
            if ask.ids and self._faults.between(STORE, came - 5.0):
                return "store away"
        raise ViolationError(f"request {ask.number} is refused for no reason: {error}")

    def _failed(self, ask: Ask, came: float) -> str:
        if self._faults.between(DEVICE, came) or self._faults.device.poison.intersection(ask.keys):
            return "failed"
        raise ViolationError(f"request {ask.number} fails for no reason")

    async def store(self, identity: str, number: int, seconds: float | None) -> None:
        """Store a document under an id, or delete it (number 0)."""
        checks, library, began = self._checks, self._service.ranker.library, self._machine.now()
        if library is None or not self._service.listens:
            return
        write = checks.ledger.begin((NAMESPACE, identity), number, expires=seconds is not None)
        try:
            if number:
                text, expires = pack_text(digits(number)), library.expiry(seconds)
                new = StoredDocument(identity, "", text, document(number), library.fingerprint, expires)
                await library.put(NAMESPACE, [Item(identity, encode(new), new.expires)])
            else:
                await library.delete(NAMESPACE, identity)
        except RequestError as error:
            checks.trace.add("not stored", identity, number, error.status)
            if not self._faults.between(STORE, began - 5.0):
                raise ViolationError(f"document {identity} is not stored for no reason: {error}") from error
            return
        write.acknowledged = self._machine.now()
        checks.trace.add("stored", identity, number)

    async def reload(self) -> None:
        """Request a reload, and check that the service then serves the bundles on the disk."""
        service, ranker, salts = self._service, self._service.ranker, dict(self._service.files.salts)
        if not service.listens:
            return
        try:
            done = await service.reloader.reload()
        except ReloadError as error:
            self._checks.trace.add("not reloaded", error)
            if not self._faults.between(ENDS + DEVICE, 0.0) and service.listens:
                raise ViolationError(f"nothing is reloaded for no reason: {error}") from error
            return
        self._checks.trace.add("reloaded", *done.loaded)
        served = {model.name: model.bundle.salt for model in ranker.models}
        if any(served.get(name, 0) < salt for name, salt in salts.items() if name in service.files.salts):
            raise ViolationError(f"a reload is answered, and does not serve what was there before: {salts} {served}")


def _call(ask: Ask) -> Call:
    n = len(ask.keys) or len(ask.ids)
    if ask.ids:
        documents = Documents([""] * n, [""] * n, list(ask.ids), ById(dict(enumerate(ask.ids)), NAMESPACE))
    else:
        texts: list[str] = [Text(key, chars) for key, chars in zip(ask.keys, ask.chars, strict=True)]
        documents = Documents(texts, [""] * n, [None] * n)
    return Call(str(ask.query), documents, model=ask.model, deadline=ask.deadline, priority=ask.priority)
