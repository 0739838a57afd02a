"""Who asks: what stands in a service between a connection and the models, and beside it what each request is checked for."""

from asyncio import CancelledError

import numpy as np

from benchmarks.simulation.faults import DEVICE, STORE, Faults
from benchmarks.simulation.invariants import Checks, ViolationError
from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import Text, document, logit, n_sequences
from benchmarks.simulation.service import Service
from benchmarks.simulation.traffic import Ask
from service.call import ById, Call, Documents
from service.engine.errors import EngineError
from service.errors import RequestError
from service.ranking.admission import Place
from service.ranking.model import Model
from service.ranking.outcome import Outcome
from service.store.base import Item
from service.store.codec import StoredDocument, encode, pack_text
from service.telemetry.stages import Stages

NAMESPACE = "default"
PIECE_SECONDS, BYTE_SECONDS = 0.002, 1e-9


class Clients:
    """Ask, and check what they are told.

    Args:
        machine: has the clock.
        service: is asked.
        checks: of all.
        faults: that may be the reason of an error.
    """

    def __init__(self, machine: SimulatedMachine, service: Service, checks: Checks, faults: Faults) -> None:
        self._machine, self._service, self._checks, self._faults = machine, service, checks, faults

    async def exchange(self, ask: Ask) -> None:
        """A request from its head to the end of its answer, as `service.http.endpoint.Exchange` has it."""
        checks, number = self._checks, ask.number
        outcome, came = "answered", self._machine.time
        try:
            with self._service.admission.enter(ask.bytes, held=0) as place:
                checks.enters(number)
                await self._received(ask, place)
                await self._answered(ask, place)
                await self._machine.sleep(ask.answer_bytes * BYTE_SECONDS)
        except RequestError as error:
            outcome = self._refused(ask, error, came)
        except EngineError:
            outcome = self._failed(ask, came)
        except CancelledError:
            outcome = "gone"
        if not outcome.startswith("refused"):
            checks.trace.add("ends", number, outcome)
        checks.leaves(number, outcome)

    async def _received(self, ask: Ask, place: Place) -> None:
        """The body comes, in pieces."""
        for piece in range(1, ask.pieces + 1):
            if ask.pieces > 1:
                await self._machine.sleep(PIECE_SECONDS)
            n_bytes = ask.bytes * piece // ask.pieces
            place.holds(n_bytes)
            self._checks.receives(ask.number, n_bytes)

    async def _answered(self, ask: Ask, place: Place) -> None:
        machine, service, checks = self._machine, self._service, self._checks
        stages = Stages(service.metrics, clock=machine.now)
        call = _call(ask)
        await machine.run(service.edge, machine.spend, ask.bytes * BYTE_SECONDS)
        model = service.models.chosen(call, strict=False)
        asked = machine.time
        checks.trace.add("asks", ask.number, ask.model, f"documents={len(call.documents)}", f"deadline={ask.deadline}")
        outcome = await model.score(call, stages, place)
        if ask.deadline is not None:
            checks.in_time(ask.number, machine.time - stages.began - ask.deadline)
        self._check(ask, call, model, outcome, asked)
        place.answers(ask.answer_bytes)
        checks.answers(ask.number, ask.answer_bytes)

    def _check(self, ask: Ask, call: Call, model: Model, outcome: Outcome, asked: float) -> None:
        """Each document has the logit that it alone decides, or none where it may have none."""
        logits = outcome.scored.logits.tolist()
        if len(logits) != len(call.documents):
            raise ViolationError(f"request {ask.number} has {len(call.documents)} documents, and {len(logits)} logits")
        keys = ask.keys or self._keys(call, asked)
        if call.documents.by_id.away and not self._faults.between(STORE, asked):
            raise ViolationError(f"request {ask.number} misses documents of a store that is whole")
        salt, joint = model.bundle.salt, model.bundle.pipeline.aggregator.joint
        for n, (key, one) in enumerate(zip(keys, logits, strict=True)):
            if one == -np.inf:
                if key and ask.deadline is None:
                    raise ViolationError(f"request {ask.number} has time, and its document {n} has no score")
            elif one != max(logit(salt, ask.query, key, part) for part in range(n_sequences(key, joint=joint))):
                raise ViolationError(f"request {ask.number} has for document {n} ({key}) a score that is not its own: {one}")

    def _keys(self, call: Call, asked: float) -> list[int]:
        """The numbers of documents by id, 0 for those that are not there; those that the store could not know are refused."""
        by_id, keys = call.documents.by_id, []
        for number, identity in by_id.ids.items():
            one = by_id.prepared(number)
            keys.append(0 if one is None else int(one.token_ids[0]))
            if one is not None or number in by_id.unknown:
                self._checks.found((NAMESPACE, identity), keys[-1], asked)
        return keys

    def _refused(self, ask: Ask, error: RequestError, came: float) -> str:
        if error.status == 429 or (error.status == 422 and ask.ids):
            return f"refused: {error.status}"
        if error.status == 503 and ask.ids and self._faults.between(STORE, came):
            return "store away"
        raise ViolationError(f"request {ask.number} is refused for no reason: {error}")

    def _failed(self, ask: Ask, came: float) -> str:
        if self._faults.between(DEVICE, came) or self._service.device.poison.intersection(ask.keys):
            return "failed"
        raise ViolationError(f"request {ask.number} fails for no reason")

    async def store(self, identity: str, number: int, seconds: float | None) -> None:
        """Store a document under an id, or delete it (number 0)."""
        checks, library, began = self._checks, self._service.library, self._machine.time
        write = checks.ledger.begin((NAMESPACE, identity), number, expires=seconds is not None)
        try:
            if number:
                new = StoredDocument(
                    identity, "", pack_text(str(number)), document(number), library.fingerprint, library.expiry(seconds)
                )
                await library.put(NAMESPACE, [Item(identity, encode(new), new.expires)])
            else:
                await library.delete(NAMESPACE, identity)
        except RequestError as error:
            checks.trace.add("not stored", identity, number, error.status)
            if not self._faults.between(STORE, began):
                raise ViolationError(f"document {identity} is not stored for no reason: {error}") from error
            return
        write.acknowledged = self._machine.time
        checks.trace.add("stored", identity, number)


def _call(ask: Ask) -> Call:
    n = len(ask.keys) or len(ask.ids)
    if ask.ids:
        documents = Documents([""] * n, [""] * n, list(ask.ids), ById(dict(enumerate(ask.ids)), NAMESPACE))
    else:
        texts: list[str] = [Text(key, chars) for key, chars in zip(ask.keys, ask.chars, strict=True)]
        documents = Documents(texts, [""] * n, [None] * n)
    return Call(str(ask.query), documents, ask.model, deadline=ask.deadline, priority=ask.priority)
