"""What the tokenizer and the analyzer make of every word met so far, looked up for all words of many texts at once."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from keyblock.text.analyzer import Analyzer
from keyblock.text.hashing import Hashes
from keyblock.text.known import Known, Words
from keyblock.text.rows import Ints, Rows, stacked
from keyblock.text.tokenizer import Tokenizer

# Words after which the next new one makes all be forgotten: a call may add any number, which stay until then. One takes 80 to 150
# bytes: the tokens, the table, and room to grow.
MOST = 1 << 17
AT_ONCE = 2048  # words that the tokenizer reads in one text: what it says of them takes memory, and holds up other threads
LONG_AT_ONCE = 1 << 14  # characters of words that are too long to be remembered
Spell = Callable[[NDArray[np.intp]], list[str]]
Learn = Callable[[Sequence[str]], Rows]


class Lexicon:
    """Learns words from the tokenizer and the analyzer as they are met. Safe to use from several threads.

    Args:
        tokens, keys: what they make of words; see Words.
        most: words after which the next new one makes all be forgotten; none: MOST.
    """

    def __init__(self, tokens: Learn, keys: Learn, most: int | None = None) -> None:
        self._tokens, self._keys, self._most = tokens, keys, most
        self._known = Known()

    def find(self, hashes: Hashes, spell: Spell) -> tuple[Ints, Words]:
        """The number of each word, and the words that these are numbers of.

        Args:
            hashes: shape (n,); 0 for a word that is not to be looked up, whose number is 0.
            spell: gives the words at some of these places; words stand between spaces in any text as they would alone.
        """
        known = self._known
        words = known.words
        found = words.find(hashes)
        if ((found == 0) & (hashes != 0)).any():
            if words.size > (self._most or MOST):
                known = self._known = Known()
            words = self._learnt(known, hashes, spell)
            found = words.find(hashes)
        return found, words

    def _learnt(self, known: Known, hashes: Hashes, spell: Spell) -> Words:
        """All that is known once these words are."""
        missing = np.flatnonzero((known.words.find(hashes) == 0) & (hashes != 0))
        new = missing[np.unique(hashes[missing], return_index=True)[1]]
        for first in range(0, len(new), AT_ONCE):
            places = new[first : first + AT_ONCE]
            words = spell(places)
            known.add(hashes[places], self._tokens(words), self._keys(words))
        return known.words


def keys_of(analyzer: Analyzer, words: Sequence[str]) -> Rows:
    """The keys of each word's terms, as in Words."""
    keys = [analyzer.keys(word) or [0] for word in words]
    counts = np.fromiter(map(len, keys), np.int32, len(keys))
    return Rows(counts, (np.asarray([key for some in keys for key in some], dtype=np.int64),))


def no_keys(words: Sequence[str]) -> Rows:
    """A lexicon of tokens alone."""
    return Rows(np.ones(len(words), np.int32), (np.zeros(len(words), np.int64),))


def no_tokens(words: Sequence[str]) -> Rows:
    """A lexicon of terms alone."""
    return Rows(np.zeros(len(words), np.int32), (np.zeros(0, np.int32),) * 3)


def in_batches(read: Learn, words: Sequence[str]) -> Rows:
    """The tokens of words, at least one, of any length, as in Words, without remembering them."""
    pieces = np.cumsum([len(word) for word in words]) // LONG_AT_ONCE
    bounds = pairwise([0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(words)])
    return stacked([read(words[first:last]) for first, last in bounds])


def tokens_of(tokenizer: Tokenizer, words: Sequence[str]) -> Rows:
    """The tokens of each word, as in Words, read in one text with a space after each."""
    (encoding,) = tokenizer.encode([" ".join(words)])
    lengths = np.fromiter(map(len, words), np.int32, len(words)) + np.int32(1)
    starts = np.cumsum(lengths, dtype=np.int32) - lengths
    offsets = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2)
    word = np.searchsorted(starts, offsets[:, 0], side="right") - 1
    counts = np.bincount(word, minlength=len(words)).astype(np.int32)
    heads, tails = (offsets - starts[word, None]).T
    return Rows(counts, (np.asarray(encoding.ids, dtype=np.int32), heads.copy(), tails.copy()))
