"""Hashes of stretches, against sums in Python's integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.hashing import LONGEST, PERIOD, Hasher

HASHER = Hasher()
MASK = (1 << 64) - 1


def hashes(words: list[str], before: int = 0) -> list[int]:
    codes = np.frombuffer((" " * before + "".join(words)).encode("utf-32-le"), dtype=np.uint32)
    ends = before + np.cumsum([len(word) for word in words], dtype=np.int32)
    starts = (ends - [len(word) for word in words]).astype(np.int32)
    found: list[int] = HASHER.hashes(codes, starts, ends.astype(np.int32)).tolist()
    return found


def slow_hash(word: str) -> int:
    powers = HASHER._powers.tolist()
    return sum(int(HASHER._numbers[ord(c)]) * power for c, power in zip(word, powers, strict=False)) & MASK


WORDS = st.lists(st.text("abcé中", min_size=1, max_size=LONGEST), min_size=1, max_size=30)


@given(WORDS, st.sampled_from([0, 1, PERIOD - 40, PERIOD - 1, PERIOD, 3 * PERIOD - 7]))
def test_a_hash_is_of_the_word_wherever_it_stands(words: list[str], before: int) -> None:
    assert hashes(words, before) == [slow_hash(word) for word in words]


def test_words_of_the_same_letters_differ() -> None:
    words = ["ab", "ba", "aab", "aba", "baa", "a" * 63, "a" * 64, "abba" * 8, "baab" * 8, "abbabaab" * 8, "baababba" * 8]
    assert len(set(hashes(words))) == len(words)


def test_a_long_stretch_has_none() -> None:
    longest, *long = hashes(["a" * LONGEST, "a" * (LONGEST + 1), "b" * 3 * PERIOD])
    assert longest == slow_hash("a" * LONGEST)
    assert long == [0, 0]


def test_nothing_to_hash() -> None:
    assert hashes([]) == []
