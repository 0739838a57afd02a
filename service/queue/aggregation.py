"""Turns the model's outputs for the sequences of a request's documents into the documents' logits, a part at a time.

A learned aggregator runs on the model's thread, between batches. It takes parts of at most a batch's size, so that no request holds
up other requests for long. Like batches, the parts have one of a few fixed shapes.
"""

import time

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Aggregated, Aggregator, Combine, aggregate
from service.pace import Pace

EXPECTED_PASSAGES = 16  # passages of a document where the pipeline sets no number; larger shapes work, but are not warmed up


class Aggregation:
    """The documents of one job; only the model's thread uses an object of this class.

    Args:
        aggregator: the pipeline's aggregator.
        counts: shape (n_documents,), the number of sequences of each document.
        combine: the learned module, for ``states``.
        cap: sequences in a part, padding included.
        pace: measures the time that a document takes.
        weights: shape (n_sequences,), see `keyblock.aggregation.aggregate`; None: all sequences have the same weight.

    Attributes:
        logits: shape (n_documents,), -inf for a document without a sequence, and for every document that is not aggregated yet.
        passages: shape (n_sequences,), see `keyblock.aggregation.Aggregated`; -inf as long as the document has no logit.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        counts: NDArray[np.intp],
        combine: Combine | None,
        cap: int,
        pace: Pace | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        self.logits = np.full(len(counts), -np.inf, dtype=np.float32)
        self.passages = np.full(int(counts.sum()), -np.inf, dtype=np.float32)
        self._aggregator = aggregator
        self._combine_and_cap = combine, cap
        self._pace = pace or Pace()
        self._combine = None if combine is None else in_fixed_shapes(combine, cap)
        self._counts = counts
        self._weights = np.ones(len(self.passages), np.float32) if weights is None else weights
        self._parts = parts(counts, cap)
        self._single_part = len(self._parts) == 1

    @property
    def learned(self) -> bool:
        """Whether a learned module computes the logits from the sequences' states, on the model's thread."""
        return self._aggregator.learned

    @property
    def done(self) -> bool:
        """Whether every document has its logit."""
        return not self._parts

    def step(self, outputs: NDArray[np.float32]) -> int:
        """Aggregate the next part, or all parts if nothing is learned, since that costs little. Returns the number of documents.

        Args:
            outputs: the model's outputs for all sequences, document by document; see `keyblock.aggregation.aggregate`.

        Raises what the learned module raises.
        """
        started, n_documents = time.perf_counter(), 0
        for _ in range(1 if self._aggregator.learned else len(self._parts)):
            documents = self._parts.pop()
            n_documents += len(documents)
            if self._single_part:
                self.logits, self.passages = aggregate(self._aggregator, outputs, self._counts, self._combine, self._weights)
            else:
                rows, counts = self._rows(documents), self._counts[documents]
                part = aggregate(self._aggregator, outputs[rows], counts, self._combine, self._weights[rows])
                self.logits[documents], self.passages[rows] = part
        self._pace.measured(n_documents, time.perf_counter() - started)
        return n_documents

    def aggregate_known(self, outputs: NDArray[np.float32], scored: NDArray[np.bool_]) -> Aggregated:
        """Aggregate the documents whose sequences are all scored; other documents and their passages get -inf.

        Args:
            outputs: as for `step`; the rows of unscored sequences may hold anything.
            scored: shape (n_sequences,), which sequences are scored.

        Raises what the learned module raises.
        """
        ends = np.cumsum(self._counts)
        before = np.concatenate([[0], np.cumsum(scored)])
        complete = before[ends] - before[ends - self._counts] == self._counts
        rows = np.repeat(complete, self._counts)
        counts = np.where(complete, self._counts, 0)
        part = Aggregation(self._aggregator, counts, *self._combine_and_cap, weights=self._weights[rows])
        while not part.done:
            part.step(outputs[rows])
        passages = np.full(len(outputs), -np.inf, dtype=np.float32)
        passages[rows] = part.passages
        return Aggregated(part.logits, passages)

    def _rows(self, documents: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows of the outputs that belong to these documents, shape (n_sequences of these documents,)."""
        counts = self._counts[documents]
        offsets = np.cumsum(self._counts)[documents] - np.cumsum(counts)  # a document's first row, less its first place in the part
        return np.repeat(offsets, counts) + np.arange(counts.sum())


def padded_size(count: int) -> int:
    """The power of two to which `count`, at least 1, is padded."""
    return 1 << (count - 1).bit_length()


def parts(counts: NDArray[np.intp], cap: int) -> list[NDArray[np.intp]]:
    """Divide the documents that have sequences into parts; returns the document numbers of each part.

    A part that is padded to a fixed shape has at most `cap` places, or a single document.

    Args:
        counts: shape (n_documents,), sequences of each; if one part is too small, documents of similar counts share a part.
        cap: places of a part.
    """
    if padded_size(len(counts)) * padded_size(int(counts.max())) <= cap:
        return [np.flatnonzero(counts)] if counts.any() else []
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    cut: list[NDArray[np.intp]] = []
    while len(order):
        most = largest_part(int(counts[order[-1]]), cap)
        cut.append(order[-most:])
        order = order[:-most]
    return cut


def largest_part(passages: int, cap: int) -> int:
    """The number of documents, a power of two, that a part may have if each has at most `passages` passages."""
    return 1 << (max(cap // padded_size(passages), 1).bit_length() - 1)


def in_fixed_shapes(combine: Combine, cap: int) -> Combine:
    """Wrap `combine` so that it runs in shapes of powers of two of at most `cap` places (or one document).

    Padding passages are masked; padding documents repeat the last document.
    """

    def run(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        documents, passages = mask.shape
        most = largest_part(passages, cap)
        if documents > most:
            starts = range(0, documents, most)
            return np.concatenate([run(states[start : start + most], mask[start : start + most]) for start in starts])
        repeated = np.minimum(np.arange(padded_size(documents)), documents - 1)
        padding = (0, 0), (0, padded_size(passages) - passages)
        return combine(np.pad(states[repeated], (*padding, (0, 0))), np.pad(mask[repeated], padding))[:documents]

    return run


def shapes(passages: int, cap: int) -> list[tuple[int, int]]:
    """The smallest and the largest shape (documents, passages) that a part may have, for each number of passages.

    Args:
        passages: the largest number of passages of a document; 0 where nothing bounds it.
        cap: places of a part.
    """
    widest = padded_size(passages or EXPECTED_PASSAGES)
    widths = [1 << power for power in range(widest.bit_length())]
    return sorted({(rows, width) for width in widths for rows in (1, largest_part(width, cap))})
