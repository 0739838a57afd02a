import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.packing import Packed
from keyblock.runtime.batching import (
    SPARE_TOKENS,
    Batch,
    BatchTooLargeError,
    bucket,
    capped,
    fill,
    halves,
    plan,
    row_counts,
    score_all,
    shapes,
)

lengths_strategy = st.lists(st.integers(1, 512), max_size=200)
caps = st.sampled_from([256, 1000, 4096])


def sequence(length: int, split: int = 2, start: int = 100) -> Packed:
    return Packed(np.arange(start, start + length, dtype=np.int32), split, np.arange(1))


class Summing:
    """A scorer that a slow loop can check: the sum of a row's real tokens, and of its types in the fraction."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def score(self, ids: np.ndarray, types: np.ndarray, mask: np.ndarray) -> np.ndarray:
        assert mask.any(axis=1).all(), "a row of padding alone"
        self.seen.append(ids.shape)
        return ((ids + types / 1024) * mask).sum(1).astype(np.float32)


@given(lengths_strategy, caps)
def test_every_sequence_runs_once_in_a_shape_of_the_closed_set(lengths: list[int], cap: int) -> None:
    batches = plan(lengths, capped(token_cap=cap))
    assert sorted(position for batch in batches for position in batch.positions) == list(range(len(lengths)))
    allowed = set(shapes(capped(max(lengths, default=1), cap)))
    for batch in batches:
        assert (batch.rows, batch.length) in allowed
        assert 1 <= len(batch.positions) <= batch.rows
        assert batch.rows == 1 or batch.rows * batch.length <= cap
        assert all(bucket(lengths[position]) == batch.length for position in batch.positions)
        assert (batch.rows - len(batch.positions)) * batch.length <= max(SPARE_TOKENS, 0)
    assert [batch.length for batch in batches] == sorted(batch.length for batch in batches)


@given(lengths_strategy, caps)
def test_scores_come_back_in_the_order_given(lengths: list[int], cap: int) -> None:
    packed = [sequence(length, split=min(3, length), start=i) for i, length in enumerate(lengths)]
    slow = [float(p.ids.sum() + len(p.ids[p.split :]) / 1024) for p in packed]
    np.testing.assert_allclose(score_all(Summing(), packed, token_cap=cap), np.asarray(slow, np.float32), rtol=1e-6)


def test_full_batches_take_the_cap_and_the_rest_a_power_of_two() -> None:
    assert row_counts(32) == [1, 2, 4, 8, 16, 32]
    assert row_counts(42) == [1, 2, 4, 8, 16, 32, 42]
    assert row_counts(1) == [1]
    assert len(shapes(capped(256))) == 45
    assert [(len(b.positions), b.rows, b.length) for b in plan([128] * 71)] == [(32, 32, 128), (32, 32, 128), (7, 8, 128)]


def test_a_rest_that_would_pad_many_rows_is_cut_again() -> None:
    assert [(len(b.positions), b.rows) for b in plan([128] * 17)] == [(16, 16), (1, 1)]
    assert [(len(b.positions), b.rows) for b in plan([128] * 30)] == [(30, 32)]
    assert [(len(b.positions), b.rows) for b in plan([256] * 7)] == [(7, 8)]


def test_longer_than_the_longest_bucket_is_an_error() -> None:
    with pytest.raises(ValueError, match="a sequence of 8193 tokens is longer than the longest bucket, 8192"):
        plan([8193])


def test_fill_pads_on_the_right_and_repeats_a_real_row() -> None:
    packed = [sequence(9), Packed(np.asarray([2, 5, 3, 7, 8, 3], np.int32), 3, np.arange(1))]
    ids, types, mask = fill(Batch((1,), 8, 2), packed, pad_id=99)
    assert ids.tolist() == [[2, 5, 3, 7, 8, 3, 99, 99]] * 2
    assert types.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0]] * 2
    assert mask.tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]] * 2
    assert fill(Batch((1,), 8, 2), packed, pad_id=99, document_type=0)[1].sum() == 0


@given(st.integers(1, 512), st.integers(2, 100), st.integers(512, 4096))
def test_halves_hold_the_same_sequences_in_known_shapes(length: int, n: int, cap: int) -> None:
    for batch in plan([length] * n, capped(token_cap=cap)):
        if batch.rows > 1:
            smaller = halves(batch)
            assert [position for half in smaller for position in half.positions] == list(batch.positions)
            assert all(half.rows < batch.rows and (half.rows, half.length) in shapes(capped(token_cap=cap)) for half in smaller)


class Small(Summing):
    """Memory for so many tokens."""

    def __init__(self, memory: int) -> None:
        super().__init__()
        self.memory = memory

    def score(self, ids: np.ndarray, types: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if ids.size > self.memory:
            raise BatchTooLargeError(f"{ids.shape}")
        return super().score(ids, types, mask)


def test_what_does_not_fit_is_run_in_halves() -> None:
    sequences = [sequence(20 + n) for n in range(40)]
    expected = score_all(Summing(), sequences)
    np.testing.assert_array_equal(score_all(Small(130), sequences), expected)
    with pytest.raises(BatchTooLargeError):
        score_all(Small(40), sequences)
