"""The runs that terms are made of, found in many texts at once, however their tokens are found.

A run is a word to the analyzer, or in scripts without spaces a pair of neighbouring characters; pairs overlap. What stands between
two spaces and holds an odd character (`keyblock.text.characters`) is one run, with all its terms.
"""

import re
import unicodedata
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from keyblock.text.analyzer import Analyzer
from keyblock.text.characters import CODES, Kind, spaced_kinds, word_characters
from keyblock.text.hashing import hasher
from keyblock.text.lexicon import Lexicon, keys_of, no_tokens
from keyblock.text.normalization import caseless, folded
from keyblock.text.page import odd_stretches, stretches
from keyblock.text.read_words import Runs
from keyblock.text.rows import Ints
from keyblock.text.scripts import ASSIGNED, IGNORABLE, UNSPACED
from keyblock.text.universal import STRETCH

MOST = 1 << 19  # runs that are remembered: a language without spaces has hundreds of thousands of pairs; one takes 40 bytes
SYLLABLES = range(0xAC00, 0xD7A4)  # of Korean: composed of letters, and all alike
PAIRED: tuple[range, ...] = (  # Kana, Bopomofo and Han
    *(range(0x3005, 0x3008), range(0x3041, 0x3097), range(0x30A1, 0x30FB), range(0x30FC, 0x30FF), range(0x3105, 0x312E)),
    *(range(0x3400, 0x4DB6), range(0x4E00, 0x9FA6)),
)


class TermReader:
    """Finds the runs of texts and their terms. Safe to use from several threads.

    Args:
        analyzer: finds the terms of each run once.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self._paired = analyzer.config.name != "english"
        self._lexicon = Lexicon(no_tokens, partial(keys_of, analyzer), MOST)

    def runs(self, text: str, codes: NDArray[np.uint32]) -> Runs:
        """The runs of a text, or of several with a white space between them.

        Args:
            text: any Unicode.
            codes: its code points, shape (n_characters,).
        """
        heads, tails = run_places(codes, paired=self._paired)

        def spell(places: NDArray[np.intp]) -> list[str]:
            return [text[head:tail] for head, tail in zip(heads[places].tolist(), tails[places].tolist(), strict=True)]

        numbers, words = self._lexicon.find(hasher().hashes(codes, heads, tails), spell)
        counts, (keys,) = words.keys.taken(numbers)
        if len(keys) == len(counts):
            return Runs(heads, tails, keys)
        return Runs(np.repeat(heads, counts), np.repeat(tails, counts), keys)


def run_places(codes: NDArray[np.uint32], *, paired: bool) -> tuple[Ints, Ints]:
    """Where runs start and end, shape (n_runs,) each, ascending.

    Args:
        codes: code points, shape (n_characters,).
        paired: whether the analyzer makes pairs of characters.
    """
    in_run, kinds = word_characters()[codes], run_kinds()[codes]
    pair = paired_characters()[codes] if paired else np.zeros(len(codes), np.bool_)
    kinds[pair] = Kind.LETTER
    _too_long(pair, kinds)
    if (kinds == Kind.ODD).any():
        odd = odd_stretches(kinds)
        in_run |= odd
        pair &= ~odd
    if not pair.any():
        return stretches(in_run)
    heads, tails = stretches(in_run & ~pair)
    pair_heads, pair_tails = _pairs(pair)
    heads, tails = np.append(heads, pair_heads), np.append(tails, pair_tails)
    order = np.argsort(heads, kind="stable")
    return heads[order], tails[order]


def _pairs(pair: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """The pairs of neighbours, and the characters that stand alone."""
    padded = np.concatenate([[False], pair, [False]])
    behind, before = padded[2:], padded[:-2]
    heads = np.flatnonzero(pair & (behind | ~before)).astype(np.int32)
    return heads, heads + np.where(behind[heads], np.int32(2), np.int32(1))


def _too_long(pair: NDArray[np.bool_], kinds: NDArray[np.uint8]) -> None:
    """Stretches that the analyzer cuts are left to it."""
    heads, tails = stretches(pair)
    for i in np.flatnonzero(tails - heads > STRETCH).tolist():
        kinds[heads[i] : tails[i]] = Kind.ODD


@cache
def paired_characters() -> NDArray[np.bool_]:
    """Whether each code point stands for itself in pairs, whatever its neighbours are, shape (CODES,)."""
    found = np.zeros(CODES, np.bool_)
    found[SYLLABLES.start : SYLLABLES.stop] = True
    found[[code for codes in PAIRED for code in codes if folded(caseless(chr(code))) == chr(code)]] = True
    found.setflags(write=False)  # it is shared
    return found


@cache
def run_kinds() -> NDArray[np.uint8]:
    """What each code point is to analyzers, shape (CODES,): SPACE, ODD, or LETTER for what does not change its neighbours."""
    kinds = spaced_kinds().copy()
    within = re.compile(f"[{UNSPACED}{IGNORABLE}]")
    for code in range(ASSIGNED.stop):
        character = chr(code)
        if within.match(character):
            kinds[code] = Kind.ODD  # as Hangzhou's numerals, which stand in pairs with Han
        elif unicodedata.category(character)[0] in "PSZ" and kinds[code] == Kind.ODD:
            kinds[code] = Kind.LETTER
    kinds.setflags(write=False)  # it is shared
    return kinds
