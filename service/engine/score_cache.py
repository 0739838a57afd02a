"""What graphs have said of sequences before: who asks the same again waits for no turn and costs no run.

The key is all that a graph reads: the token ids of one sequence, where its second segment starts, and which graph it is. Query,
instruction, title, budget, selection and its rules have their effect on these alone, so that nothing stale is ever found; a graph
that is loaded again is another one. What depends on more (weights of sequences, learned aggregators, fusion, activations, spans)
comes after it and is computed anew. An output is whole in itself, whatever became of the request that it was computed for.
"""

from collections.abc import Mapping
from hashlib import blake2b

from keyblock.packing import Packed
from service.engine.encoder import Encoder
from service.engine.jobs import Job, Said
from service.lru import Lru
from service.telemetry.metrics import Metrics

ENTRY_BYTES = 240  # what an entry costs beside its arrays: the key, the pair, the number, the table
ARRAY_BYTES = 112  # an array's own, beside its data


class ScoreCache:
    """One for all models. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
        metrics: counts what is found.
    """

    def __init__(self, capacity: int, metrics: Metrics) -> None:
        self._said: Lru[Said] = Lru(capacity, cost)
        self._metrics = metrics

    def recall(self, job: Job) -> dict[int, bytes]:
        """Enter what is known into a job that is not handed in yet; the keys of its other sequences by their numbers."""
        if not self._said.capacity:
            return {}
        keys = [sequence_key(packed, job.encoder) for packed in job.packed]  # before the lock is taken
        found = enumerate(self._said.get_all(keys))
        known = {number: said for number, said in found if said is not None and job.served_by(said)}
        job.recall(known)
        self._metrics.add("score_lookups", len(known), model=job.encoder.model, outcome="hit")
        self._metrics.add("score_lookups", len(keys) - len(known), model=job.encoder.model, outcome="miss")
        return {number: key for number, key in enumerate(keys) if number not in known}

    def keep(self, job: Job, missed: Mapping[int, bytes]) -> None:
        """Keep what the graph has said of these sequences by now, see `recall`; the others were not scored: late, or failed."""
        if missed:
            self._said.put_all({missed[number]: said for number, said in job.said_of(missed)})
            self._metrics.set("score_cache_bytes", self._said.nbytes)

    def clear(self) -> None:
        """Forget everything: graphs were put in the place of others."""
        self._said.clear()
        self._metrics.set("score_cache_bytes", 0)


def sequence_key(packed: Packed, encoder: Encoder) -> bytes:
    """16 bytes; nobody can make two sequences of one key, so that no client can put its scores in another's place."""
    where = packed.split.to_bytes(8, "little")
    return blake2b(packed.ids.data, digest_size=16, salt=encoder.identity, person=where).digest()


def cost(said: Said) -> int:
    """Bytes of an entry."""
    return ENTRY_BYTES + sum(part.nbytes + ARRAY_BYTES for part in said if part is not None and part.ndim)
