"""What the tokenizer and the analyzer make of every word met so far, looked up for all words of many texts at once.

A word is found by a 64-bit hash: the sum over its characters of a random number for the character times a power of an odd base,
modulo 2^64. Prefix sums of a whole text give the hash of any stretch of it, so numpy hashes all words in a few passes. Numbers and
base are drawn anew in each process, so that nobody can prepare words that collide; by chance two of 100,000 do in one of 10^9.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyblock.characters import CODES
from keyblock.text import Analyzer
from keyblock.tokenization import Tokenizer

LONGEST = 64  # characters of a word: the hashes of much longer ones would be weaker
MOST = 1 << 17  # words after which all are forgotten; one takes about 60 bytes, and all are copied when some are learnt
PERIOD = 1 << 16  # powers are repeated after so many characters, so that their table stays small
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: the top bits of a product with it are well mixed
Hashes = NDArray[np.uint64]
Places = NDArray[np.intp]


class Hasher:
    """Hashes stretches of an array of characters."""

    def __init__(self) -> None:
        rng = np.random.default_rng(secrets.randbits(128))
        self._numbers = rng.integers(1, 1 << 63, CODES, dtype=np.uint64)
        base = int(rng.integers(1 << 60)) * 8 + 5  # odd, so that it has an inverse, and 1 less only once divisible by 4
        self._powers, self._inverses = _powers(base), _powers(pow(base, -1, 1 << 64))

    def hashes(self, codes: NDArray[np.uint32], starts: NDArray[np.int32], ends: NDArray[np.int32]) -> Hashes:
        """A hash of each stretch, shape (n,), never 0.

        Args:
            codes: code points, shape (n_characters,).
            starts, ends: shape (n,), into `codes`.
        """
        terms = np.zeros((-(-len(codes) // PERIOD), PERIOD), dtype=np.uint64)
        terms.ravel()[: len(codes)] = self._numbers[codes]
        terms *= self._powers
        sums = np.zeros(terms.size + 1, dtype=np.uint64)
        np.cumsum(terms, out=sums[1:])
        found: Hashes = (sums[ends] - sums[starts]) * self._inverses[starts % PERIOD]
        for i in np.flatnonzero(starts // PERIOD != (ends - 1) // PERIOD):  # begun before the powers begin again
            found[i] = (self._numbers[codes[starts[i] : ends[i]]] * self._powers[: ends[i] - starts[i]]).sum()
        found[found == 0] = 1
        return found


def _powers(base: int) -> NDArray[np.uint64]:
    """Of 0 to PERIOD - 1, modulo 2^64."""
    powers = np.ones(PERIOD, dtype=np.uint64)
    powers[1:] = base
    return np.cumprod(powers, dtype=np.uint64)


@dataclass(frozen=True)
class Words:
    """What is known of words.

    Attributes:
        firsts, counts: shape (n_words,): word i is tokens ``firsts[i] : firsts[i] + counts[i]``.
        keys: shape (n_words,), the key of its term; 0 for a stop word, and for a word that is no term.
        ids, heads, tails: shape (n_tokens,): the tokens, and the characters of the word where they start and end.
    """

    firsts: NDArray[np.int32]
    counts: NDArray[np.int32]
    keys: NDArray[np.int64]
    ids: NDArray[np.int32]
    heads: NDArray[np.int32]
    tails: NDArray[np.int32]

    @property
    def size(self) -> int:
        """How many words."""
        return len(self.firsts)

    def extended(self, more: "Words") -> "Words":
        """These words, then those."""
        moved = more.firsts + np.int32(len(self.ids))
        pairs = zip(vars(self).values(), (vars(more) | {"firsts": moved}).values(), strict=True)
        return Words(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class Table:
    """Words by their hashes, with open addressing; never changed once it is made.

    Attributes:
        hashes: shape (size,), a power of two; 0 where there is none.
        numbers: shape (size,), the words' places in `words`.
    """

    hashes: Hashes
    numbers: NDArray[np.int32]
    words: Words

    def find(self, hashes: Hashes) -> NDArray[np.int32]:
        """The number of each word, shape (n,); -1 where it is unknown."""
        at = _first_place(hashes, len(self.hashes))
        met = self.hashes[at]
        found = np.where(met == hashes, self.numbers[at], np.int32(-1))
        rest = np.flatnonzero((met != hashes) & (met != 0))
        while len(rest):
            at[rest] = (at[rest] + 1) % len(self.hashes)
            met = self.hashes[at[rest]]
            hit = met == hashes[rest]
            found[rest[hit]] = self.numbers[at[rest[hit]]]
            rest = rest[~hit & (met != 0)]
        return found

    def extended(self, hashes: Hashes, words: Words) -> "Table":
        """With more words, whose hashes, shape (n,), are new and distinct."""
        size, known = len(self.hashes), self.words.size
        while size < 3 * (known + len(hashes)):
            size *= 2
        table = Table(np.zeros(size, np.uint64), np.zeros(size, np.int32), self.words.extended(words))
        if size == len(self.hashes):
            table.hashes[:], table.numbers[:] = self.hashes, self.numbers
        else:
            kept = self.hashes != 0
            table._place(self.hashes[kept], self.numbers[kept])
        table._place(hashes, np.arange(known, known + len(hashes), dtype=np.int32))
        return table

    def _place(self, hashes: Hashes, numbers: NDArray[np.int32]) -> None:
        at, rest = _first_place(hashes, len(self.hashes)), np.arange(len(hashes))
        while len(rest):
            free = rest[self.hashes[at[rest]] == 0]
            self.numbers[at[free]] = numbers[free]  # of several that want one place the last gets it
            won = free[self.numbers[at[free]] == numbers[free]]
            self.hashes[at[won]] = hashes[won]
            rest = rest[self.hashes[at[rest]] != hashes[rest]]
            at[rest] = (at[rest] + 1) % len(self.hashes)


def _first_place(hashes: Hashes, size: int) -> Places:
    return ((hashes * SPREAD) >> np.uint64(64 - size.bit_length() + 1)).astype(np.intp)


class Lexicon:
    """Learns words from the tokenizer and the analyzer as they are met. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer) -> None:
        self._tokenizer, self._analyzer = tokenizer, analyzer
        self._table = self._empty()
        self._lock = threading.Lock()

    def find(self, hashes: Hashes, spell: Callable[[Places], list[str]]) -> tuple[NDArray[np.int32], Words]:
        """The number of each word, and the words that these are numbers of.

        Args:
            hashes: shape (n,).
            spell: gives the words at some of these places.
        """
        table = self._table
        found = table.find(hashes)
        if (found < 0).any():
            if table.words.size > MOST:  # all are learnt again, those of this call first
                found[:] = -1
            missing = np.flatnonzero(found < 0)
            new = missing[np.unique(hashes[missing], return_index=True)[1]]
            table = self._learnt(table, hashes[new], spell(new))
            found = table.find(hashes)
        return found, table.words

    def _learnt(self, table: Table, hashes: Hashes, words: Sequence[str]) -> Table:
        """A table with these words besides; the shared one too, unless another thread was first: then they will be learnt again."""
        extended = (self._empty() if table.words.size > MOST else table).extended(hashes, self._read(words))
        with self._lock:
            if self._table is table:
                self._table = extended
        return extended

    def _read(self, words: Sequence[str]) -> Words:
        encodings = self._tokenizer.encode(words)
        counts = np.asarray([len(encoding) for encoding in encodings], dtype=np.int32)
        keys = [found[0] if len(found := self._analyzer.keys(word)) == 1 else 0 for word in words]
        offsets = np.asarray([span for encoding in encodings for span in encoding.offsets], dtype=np.int32).reshape(-1, 2)
        ids = np.asarray([token for encoding in encodings for token in encoding.ids], dtype=np.int32)
        firsts = np.cumsum(counts, dtype=np.int32) - counts
        return Words(firsts, counts, np.asarray(keys, dtype=np.int64), ids, offsets[:, 0].copy(), offsets[:, 1].copy())

    @staticmethod
    def _empty() -> Table:
        nothing = np.zeros(0, np.int32)
        words = Words(nothing, nothing, np.zeros(0, np.int64), nothing, nothing, nothing)
        return Table(np.zeros(1 << 15, np.uint64), np.zeros(1 << 15, np.int32), words)
