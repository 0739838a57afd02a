r"""Reading texts word by word: what each word becomes is looked up, for all texts at once.

In "5€ a_b e\u0301te", to BERT's tokenizer and Python's analyzer:

word     what the tokenizer reads by itself: 5€, a, _, b, and e\u0301te, which is odd
run      what the analyzer makes a term of: 5, a_b, and e\u0301te, for all its terms; 5 and a_b are no words, but parts or several
odd      between two spaces, with a character that may change its neighbours, as \u0301 does: one word and one run
stretch  any of these: characters from a head up to a tail
page     all texts under each other, so that numpy finds the stretches of all at once (`keyblock.text.page`)
long     more than 64 characters: read by the tokenizer in each call, and by the analyzer in each block; all else is remembered
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from keyblock.text.analyzer import Analyzer
from keyblock.text.characters import word_characters
from keyblock.text.hashing import LONGEST, hasher
from keyblock.text.known import Words
from keyblock.text.lexicon import Lexicon
from keyblock.text.page import Page
from keyblock.text.reading import Terms
from keyblock.text.rows import Ints, Rows
from keyblock.text.tokenizer import Tokenizer

LONG_SHARE = 0.5  # a text with more of its characters in long words is left to the tokenizer: there is little to look up
HUGE = 1 << 16  # characters of a word that leave its text to the tokenizer, too: lists of its tokens would hold up other threads


class Runs(NamedTuple):
    """The runs of a text, in order.

    Attributes:
        heads, tails: shape (n,), where they start and end; a run with several terms stands there for each, one without any once.
        keys: shape (n,), their terms' keys; 0 where there is no term (a stop word), and for long runs, whose terms are not known.
    """

    heads: Ints
    tails: Ints
    keys: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadWords:
    """What the words of a text are together; a Reading.

    Attributes:
        text: read.
        analyzer: finds the terms of blocks that start or end within a run, or hold a long one.
        ids, heads, tails: shape (n_tokens,): the tokens, and where they start and end in the text.
        runs: what its terms are made of.
    """

    text: str
    analyzer: Analyzer
    ids: Ints
    heads: Ints
    tails: Ints
    runs: Runs

    def places(self) -> tuple[Ints, Ints]:
        """See Reading."""
        return self.heads, self.tails

    def offsets(self, bounds: Ints) -> tuple[Ints, Ints]:
        """See Reading."""
        return self.heads[bounds[:, 0]], self.tails[bounds[:, 1] - 1]

    def terms(self, starts: Ints, ends: Ints) -> Terms:
        """See Reading."""
        first, last = np.searchsorted(self.runs.tails, starts, side="right"), np.searchsorted(self.runs.heads, ends)
        kept = np.cumsum(np.append(0, self.runs.keys != 0))
        keys = self.runs.keys[self.runs.keys != 0]
        blocks = [keys[start:end] for start, end in zip(kept[first].tolist(), kept[last].tolist(), strict=True)]
        for i in np.flatnonzero(self._cut(first, starts, last, ends)):
            blocks[i] = np.asarray(self.analyzer.keys(self.text[starts[i] : ends[i]]), dtype=np.int64)
        bounds = np.cumsum([0, *map(len, blocks)], dtype=np.int32)
        return Terms(np.concatenate(blocks) if blocks else np.zeros(0, np.int64), bounds)

    def _cut(self, first: NDArray[np.intp], starts: Ints, last: NDArray[np.intp], ends: Ints) -> NDArray[np.bool_]:
        """Whether a block, of runs `first` up to `last`, starts or ends within one, or holds a long one."""
        heads, tails, _ = self.runs
        long = np.flatnonzero(tails - heads > LONGEST)
        cut: NDArray[np.bool_] = np.searchsorted(long, first) < np.searchsorted(long, last)
        some = np.flatnonzero(first < last)
        cut[some] |= (heads[first[some]] < starts[some]) | (tails[last[some] - 1] > ends[some])
        return cut


def joined(text: str, several: Sequence[ReadWords]) -> ReadWords:
    """The reading of a text from those of its parts, which follow each other, at least one."""
    starts = np.cumsum([0, *(len(part.text) for part in several[:-1])]).tolist()
    moved = [
        (part.heads + start, part.tails + start, part.runs.heads + start, part.runs.tails + start)
        for start, part in zip(starts, several, strict=True)
    ]
    heads, tails, run_heads, run_tails = (np.concatenate(column, dtype=np.int32) for column in zip(*moved, strict=True))
    ids, keys = np.concatenate([part.ids for part in several]), np.concatenate([part.runs.keys for part in several])
    return ReadWords(text, several[0].analyzer, ids, heads, tails, Runs(run_heads, run_tails, keys))


def encoded(text: str, encoding: Encoding, analyzer: Analyzer) -> ReadWords:
    """What the tokenizer made of a text of more than LONGEST characters, as words: its terms are found block by block."""
    heads, tails = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2).T
    run = Runs(np.zeros(1, np.int32), np.full(1, len(text), np.int32), np.zeros(1, np.int64))
    return ReadWords(text, analyzer, np.asarray(encoding.ids, dtype=np.int32), heads.copy(), tails.copy(), run)


class WordReader:
    """Reads texts as the tokenizer and the analyzer would. Safe to use from several threads.

    Args:
        tokenizer: reads each word once.
        analyzer: as well.
        kinds: what each code point is to the tokenizer, shape (CODES,).
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, kinds: NDArray[np.uint8]) -> None:
        self._analyzer, self._kinds, self._term = analyzer, kinds, word_characters()
        self._lexicon, self._hasher = Lexicon(tokenizer, analyzer), hasher()

    def read(self, texts: Sequence[str]) -> list[ReadWords | None]:
        """A reading of each text; None for one that is mostly long words, or holds a huge one."""
        found: list[ReadWords | None] = [None] * len(texts)
        page = Page.of(texts, self._kinds, self._term)
        left = _left(page)
        if left.any():
            page = Page.of([texts[i] for i in np.flatnonzero(~left).tolist()], self._kinds, self._term)
        for i, reading in zip(np.flatnonzero(~left).tolist(), self._looked_up(page), strict=True):
            found[i] = reading
        return found

    def _looked_up(self, page: Page) -> Iterator[ReadWords]:
        """A reading of each text of the page."""
        numbers, words = self._lexicon.find(self._hasher.hashes(page.codes, page.heads, page.tails), page.spell)
        tokens, runs = self._tokens(page, numbers, words), _runs(page, numbers, words)
        ids, heads, tails = tokens.columns
        begins = np.repeat(page.heads[: page.n_words], tokens.counts)
        heads, tails = heads + begins, tails + begins
        token_bounds = pairwise(np.append(0, np.cumsum(tokens.counts))[page.first_words].tolist())
        run_bounds = pairwise(np.searchsorted(runs.heads, page.bounds).tolist())
        for text, start, token, run in zip(page.texts, page.bounds[:-1].tolist(), token_bounds, run_bounds, strict=True):
            yield ReadWords(
                text=text,
                analyzer=self._analyzer,
                ids=ids[slice(*token)].copy(),  # a view would keep the tokens of all texts alive
                heads=heads[slice(*token)] - start,
                tails=tails[slice(*token)] - start,
                runs=Runs(runs.heads[slice(*run)] - start, runs.tails[slice(*run)] - start, runs.keys[slice(*run)]),
            )

    def _tokens(self, page: Page, numbers: Ints, words: Words) -> Rows:
        """The tokens of each word of the page, as in Words."""
        tokens, long = words.tokens.taken(numbers[: page.n_words]), _long_words(page)
        return tokens.filled(long, self._lexicon.long(page.spell(long))) if len(long) else tokens


def _runs(page: Page, numbers: Ints, words: Words) -> Runs:
    """The runs of the page, from the numbers of its stretches."""
    counts, (keys,) = words.keys.taken(numbers[page.runs])
    runs = page.runs if len(keys) == len(counts) else np.repeat(page.runs, counts)  # each has one at least
    return Runs(page.heads[runs], page.tails[runs], keys)


def _long_words(page: Page) -> NDArray[np.intp]:
    return np.flatnonzero(page.tails[: page.n_words] - page.heads[: page.n_words] > LONGEST)


def _left(page: Page) -> NDArray[np.bool_]:
    """Whether each text is left to the tokenizer, shape (n_texts,)."""
    long = _long_words(page)
    documents, lengths = page.documents(page.heads[long]), page.tails[long] - page.heads[long]
    within = np.bincount(documents, lengths, minlength=len(page.texts))
    left: NDArray[np.bool_] = within > LONG_SHARE * np.diff(page.bounds)
    left[documents[lengths > HUGE]] = True
    return left
