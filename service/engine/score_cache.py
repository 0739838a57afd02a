"""Outputs of graphs for earlier sequences: a request with the same sequence waits for no turn and costs no run.

The key holds all that a graph reads: the token ids of one sequence, the start of its second segment, and the graph's identity.
Query, instruction, title, budget, selection and its rules act only through these, so no stale output is ever found. A graph that is
loaded again has a new identity. What depends on more (weights of sequences, learned aggregators, fusion, activations, spans) comes
later and is computed anew. An output is complete by itself, even if the request for which it was computed failed.
"""

from collections.abc import Mapping
from hashlib import blake2b

from keyblock.packing import Packed
from service.engine.encoder import Encoder
from service.engine.jobs import Job, SequenceOutput
from service.lru import Lru
from service.telemetry.metrics import Metrics

ENTRY_BYTES = 240  # of an entry without its arrays: the key, the pair, the number, the table
ARRAY_BYTES = 112  # of an array without its data


class ScoreCache:
    """One cache for all models. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
        metrics: counts hits and misses.
    """

    def __init__(self, capacity: int, metrics: Metrics) -> None:
        self._outputs: Lru[SequenceOutput] = Lru(capacity, cost)
        self._metrics = metrics

    def recall(self, job: Job) -> dict[int, bytes]:
        """Enter known outputs into a job before it is submitted. Returns the keys of its other sequences by their numbers."""
        if not self._outputs.capacity:
            return {}
        keys = [sequence_key(packed, job.encoder) for packed in job.packed]  # before the lock is taken
        found = enumerate(self._outputs.get_all(keys))
        known = {number: output for number, output in found if output is not None and job.satisfied_by(output)}
        job.recall(known)
        self._metrics.add("score_lookups", len(known), model=job.encoder.model, outcome="hit")
        self._metrics.add("score_lookups", len(keys) - len(known), model=job.encoder.model, outcome="miss")
        return {number: key for number, key in enumerate(keys) if number not in known}

    def keep(self, job: Job, missed: Mapping[int, bytes]) -> None:
        """Keep the outputs of these sequences, see `recall`, that are scored by now; the others were late or failed."""
        if missed:
            self._outputs.put_all({missed[number]: output for number, output in job.outputs_of(missed)})
            self._metrics.set("score_cache_bytes", self._outputs.nbytes)

    def clear(self) -> None:
        """Drop all entries, because graphs were replaced."""
        self._outputs.clear()
        self._metrics.set("score_cache_bytes", 0)


def sequence_key(packed: Packed, encoder: Encoder) -> bytes:
    """A key of 16 bytes, from a cryptographic hash: no client can make two sequences collide and so plant false scores."""
    where = packed.split.to_bytes(8, "little")
    return blake2b(packed.ids.data, digest_size=16, salt=encoder.identity, person=where).digest()


def cost(output: SequenceOutput) -> int:
    """Bytes of an entry."""
    return ENTRY_BYTES + sum(part.nbytes + ARRAY_BYTES for part in output if part is not None and part.ndim)
