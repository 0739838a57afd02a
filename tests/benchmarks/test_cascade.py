"""The cascade by m: a model that remembers is the same model, and the table says what was found."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.cascade import EVERY, SHORT, Remembering, row, table
from keyblock.packing import Packed


class Sums:
    """A model whose logit is the sum of the ids; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        self.asked.append(len(sequences))
        return np.asarray([packed.ids.sum() for packed in sequences], dtype=np.float32)

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        raise AssertionError("a block and a document of the same tokens are one sequence")

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        raise AssertionError("BinB has no aggregator")


def packed(*ids: int) -> Packed:
    return Packed(np.asarray(ids, dtype=np.int32), 1, np.zeros(1, dtype=np.intp))


def test_a_sequence_is_scored_once() -> None:
    inner = Sums()
    model = Remembering(inner)
    assert model.choose([packed(1, 2), packed(3), packed(1, 2)]).tolist() == [3, 3, 3]
    assert model.outputs([packed(4), packed(3), packed(1, 2)]).tolist() == [4, 3, 3]
    assert model.outputs([packed(4)]).tolist() == [4]
    assert inner.asked == [2, 1, 0]


def test_the_table_compares_with_every_block_and_with_the_time_of_bm25() -> None:
    every = {"q1": 1.0, "q2": 0.5, "q3": 1.0}
    found = {SHORT: row({"q1": 0.5, "q2": 0.5, "q3": 0.0}, every, 4.0), EVERY: row(every, every, 10.0)}
    short, best = (line.strip("| ").split(" | ") for line in table({"qmsum, 128 tokens": found}).splitlines()[2:])
    assert short[:4] == ["qmsum, 128 tokens (3)", SHORT, "0.3333", "-0.5000"]
    assert short[-2:] == ["4.0", "1.00"]
    assert best[1] == EVERY
    assert best[-2:] == ["10.0", "2.50"]
