"""Reading texts unit by unit, for tokenizers of SentencePiece and of bytes; `keyblock.text.units` says what a unit is.

A unit is looked up with the white space in front of it. Three kinds are read anew each time: the first of a text, since tokenizers
may mark a text's start; the last, where it ends in what a neighbour might change; and those of more than 64 characters.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from keyblock.text.analyzer import Analyzer
from keyblock.text.hashing import hasher
from keyblock.text.lexicon import Lexicon, in_batches, no_keys
from keyblock.text.page import Page
from keyblock.text.page_reader import PageReader
from keyblock.text.read_words import Runs
from keyblock.text.rows import Ints, Rows, stacked
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import Borders, ends_solid

FILLER = " a"  # stands in front of units that are read among others, so that each starts where a unit may start


class UnitReader(PageReader):
    """Reads what tokenizers read unit by unit.

    Args:
        tokenizer: reads each unit once.
        analyzer: finds terms.
        borders: of the tokenizer's units.
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, borders: Borders) -> None:
        super().__init__(analyzer)
        self._tokenizer, self._borders = tokenizer, borders
        self._units = Lexicon(partial(tokens_among, tokenizer), no_keys)

    def page(self, texts: Sequence[str]) -> Page:
        """See PageReader."""
        return Page.of_units(texts, self._borders)

    def looked_up(self, page: Page) -> tuple[Rows, Runs]:
        """See PageReader."""
        return self._tokens(page), self.terms.runs(page.text, page.codes)

    def _tokens(self, page: Page) -> Rows:
        hashes = hasher().hashes(page.codes, page.heads, page.tails)
        first, last = _ends(page)
        hashes[first] = 0
        hashes[last] = 0
        numbers, units = self._units.find(hashes, page.spell)
        tokens = units.tokens.taken(numbers)
        for at, read in ((first, partial(tokens_at, self._tokenizer, "")), (last, partial(tokens_at, self._tokenizer, FILLER))):
            tokens = tokens.filled(at, read(page.spell(at))) if len(at) else tokens
        hashes[first] = hashes[last] = 1
        long = np.flatnonzero(hashes == 0)
        return tokens.filled(long, in_batches(partial(tokens_among, self._tokenizer), page.spell(long))) if len(long) else tokens


def _ends(page: Page) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first units of the texts, and of the others those that end a text with what a neighbour might change."""
    firsts, lasts = page.first_words[:-1], page.first_words[1:] - 1
    full = firsts <= lasts
    firsts, lasts = firsts[full], lasts[full]
    changes = [not ends_solid(page.text, tail) for tail in page.tails[lasts].tolist()]
    return firsts, lasts[(lasts > firsts) & np.asarray(changes, np.bool_)]


def tokens_among(tokenizer: Tokenizer, units: Sequence[str]) -> Rows:
    """The tokens of each unit, as in Words, read in one text; none is a text's first, or its last and might be changed."""
    lengths = np.fromiter(map(len, units), np.int32, len(units))
    fillers = np.fromiter((0 if i and unit[0] == " " else len(FILLER) for i, unit in enumerate(units)), np.int32, len(units))
    starts = np.cumsum(lengths + fillers, dtype=np.int32) - lengths
    text = "".join(f"{FILLER if filler else ''}{unit}" for filler, unit in zip(fillers.tolist(), units, strict=True))
    return _rows(tokenizer, text, starts, lengths)


def tokens_at(tokenizer: Tokenizer, before: str, units: Sequence[str]) -> Rows:
    """The tokens of each unit, at least one, as in Words, as the last of a text."""
    start = np.full(1, len(before), np.int32)
    return stacked([_rows(tokenizer, f"{before}{unit}", start, np.full(1, len(unit), np.int32)) for unit in units])


def _rows(tokenizer: Tokenizer, text: str, starts: Ints, lengths: Ints) -> Rows:
    """The tokens of a text that start in its units, shape (n_units,), the last of which ends it, as in Words."""
    (encoding,) = tokenizer.encode([text])
    offsets = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2)
    unit = np.searchsorted(starts, offsets[:, 0], side="right") - 1
    ends = starts + lengths
    ends[-1] += 1  # spaces at a text's end may stand behind it: RoBERTa's offsets leave spaces out
    inside = (unit >= 0) & (offsets[:, 0] < ends[unit])
    unit, offsets = unit[inside], offsets[inside]
    heads, tails = (offsets - starts[unit, None]).T
    ids = np.asarray(encoding.ids, dtype=np.int32)[inside]
    return Rows(np.bincount(unit, minlength=len(starts)).astype(np.int32), (ids, heads.copy(), tails.copy()))
