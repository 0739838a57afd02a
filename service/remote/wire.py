"""The messages between preparation and model: sequences as a few arrays, whatever their number, and their scores."""

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.bundle import Bundle
from keyblock.packing import Packed, weights_of
from service.queue.job import Scored

NO_BLOCKS = np.zeros(0, np.intp)  # scoring does not need to know which blocks a sequence holds


class Named(NamedTuple):
    """The name of a bundle for another process that sees the same directories.

    Attributes:
        path: of its directory.
        digest: of its manifest, which has the hashes of all its files.
    """

    path: str
    digest: str


class Sequences(NamedTuple):
    """Documents, each packed into sequences.

    Attributes:
        ids: shape (n_tokens,), token ids of all sequences, one behind the other.
        ends: shape (n_sequences,), where each ends in `ids`.
        splits: shape (n_sequences,), see `Packed`.
        weights: shape (n_sequences,), see `Packed`.
        counts: shape (n_documents,), sequences of each.
    """

    ids: NDArray[np.int32]
    ends: NDArray[np.intp]
    splits: NDArray[np.intp]
    weights: NDArray[np.float32]
    counts: NDArray[np.intp]


class ScoreRequest(NamedTuple):
    """A request for scores.

    Attributes:
        sequences: to be scored.
        seconds: from the call's arrival, after which nothing more is scored, since two machines share no clock; None: no deadline.
        order: document numbers, the most urgent first, if there is a deadline; None: any order.
        level: calls of a smaller one go first.
        marks: whether to mark the tokens.
        blocks: whether each sequence is a block for a learned selector, and not a part of a document.
    """

    sequences: Sequences
    seconds: float | None = None
    order: Sequence[int] | None = None
    level: int = 0
    marks: bool = False
    blocks: bool = False


class Report(NamedTuple):
    """The state of a replica of the model.

    Attributes:
        replica: its host and process.
        waiting: shape (n_jobs,), seconds of work of each job in hand, from all callers.
        paces: seconds per token of each open bundle.
        ready: whether its own bundles are warm.
    """

    replica: str
    waiting: NDArray[np.float32]
    paces: dict[Named, float]
    ready: bool = True


class Reply(NamedTuple):
    """The answer of a replica of the model.

    Attributes:
        report: its state after the work.
        scored: None if there is a problem.
        problem: one line; empty for none.
        elsewhere: whether the problem is the replica's own, so that another replica may succeed.
    """

    report: Report
    scored: Scored | None = None
    problem: str = ""
    elsewhere: bool = False


class Described(NamedTuple):
    """The description of an open bundle for metrics and /info: see `service.queue.graphs.Scorer`."""

    labels: dict[str, str]
    about: dict[str, Any]
    fell_back: bool


def named(bundle: Bundle) -> Named:
    """The bundle's name for other processes."""
    return Named(str(bundle.path.absolute()), hashlib.sha256(bundle.manifest.model_dump_json().encode()).hexdigest())


def written(documents: Sequence[Sequence[Packed]]) -> Sequences:
    """Documents as arrays."""
    packed = list(chain.from_iterable(documents))
    return Sequences(
        np.concatenate([one.ids for one in packed]) if packed else np.zeros(0, np.int32),
        np.cumsum([len(one.ids) for one in packed], dtype=np.intp),
        np.asarray([one.split for one in packed], np.intp),
        weights_of(packed),
        np.fromiter(map(len, documents), np.intp, len(documents)),
    )


def read(sequences: Sequences) -> list[list[Packed]]:
    """The documents again, with everything that scoring needs."""
    ids = np.split(sequences.ids, sequences.ends[:-1]) if len(sequences.ends) else []
    of_all = zip(ids, sequences.splits.tolist(), sequences.weights.tolist(), strict=True)
    packed = iter([Packed(one, split, NO_BLOCKS, weight=weight) for one, split, weight in of_all])
    return [[next(packed) for _ in range(count)] for count in sequences.counts.tolist()]
