"""Words found by their hashes, against a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text import known
from keyblock.text.known import SPREAD, Known, Words
from keyblock.text.rows import Rows

MASK = (1 << 64) - 1
CROWD = [number * pow(int(SPREAD), -1, 1 << 64) & MASK for number in range(1, 200)]  # all want the first slot


def described(hashes: list[int]) -> tuple[np.ndarray, Rows, Rows]:
    """Made-up words: the number of tokens of each, and its key, are told by its hash."""
    counts = np.asarray([value % 3 for value in hashes], dtype=np.int32)
    ids = np.repeat(np.asarray([value % 1000 for value in hashes], dtype=np.int32), counts)
    keys = np.asarray([value % 10_000 for value in hashes], dtype=np.int64)
    return np.asarray(hashes, dtype=np.uint64), Rows(counts, (ids, ids, ids)), Rows(np.ones(len(keys), np.int32), (keys,))


def assert_found(words: Words, hashes: list[int]) -> None:
    numbers = words.find(np.asarray(hashes, dtype=np.uint64))
    expected = described(hashes)
    for found, rows in ((words.tokens.taken(numbers), expected[1]), (words.keys.taken(numbers), expected[2])):
        np.testing.assert_array_equal(found.counts, rows.counts)
        for column, other in zip(found.columns, rows.columns, strict=True):
            np.testing.assert_array_equal(column, other)


HASHES = st.sampled_from(CROWD) | st.integers(1, MASK)


@given(st.lists(st.lists(HASHES, max_size=20), max_size=8), st.lists(HASHES, max_size=20))
def test_what_was_added_is_found(several: list[list[int]], others: list[int]) -> None:
    shared, added = Known(), set[int]()
    for hashes in several:
        before, had = shared.words, list(added)
        shared.add(*described(sorted(set(hashes))))
        added |= set(hashes)
        assert_found(before, had)
        assert not before.find(np.asarray([value for value in hashes if value not in had], dtype=np.uint64)).any()
    assert_found(shared.words, list(added))
    assert shared.words.size == 1 + len(added)
    unknown = [value for value in others if value not in added]
    assert not shared.words.find(np.asarray([0, *unknown], dtype=np.uint64)).any()


def test_no_word_has_no_token_and_no_term() -> None:
    words = Words.none()
    nothing = np.zeros(2, np.int32)
    assert words.tokens.taken(nothing).counts.tolist() == [0, 0]
    assert words.keys.taken(nothing).columns[0].tolist() == [0, 0]


def test_many_words_grow_the_table() -> None:
    shared, rng = Known(), np.random.default_rng(0)
    hashes = np.unique(rng.integers(1, MASK, 40_000, dtype=np.uint64)).tolist()
    for first in range(0, len(hashes), 1999):
        shared.add(*described(hashes[first : first + 1999]))
    assert len(shared.words.slots) > known.SLOTS
    assert_found(shared.words, hashes)


def test_a_few_more_copy_nothing() -> None:
    shared = Known()
    shared.add(*described(list(range(1, 5000))))
    shared.add(*described([6000]))
    words = shared.words
    shared.add(*described([6001]))
    assert shared.words.slots is words.slots
    assert shared.words.hashes.array is words.hashes.array
    assert shared.words.tokens.columns[0].array is words.tokens.columns[0].array
