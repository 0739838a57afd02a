"""Reading texts under each other: what each stretch becomes is looked up, for all texts at once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from keyblock.text.analyzer import Analyzer
from keyblock.text.hashing import LONGEST
from keyblock.text.known import Words
from keyblock.text.page import Page, joined_codes
from keyblock.text.read_words import ReadWords, Runs
from keyblock.text.rows import Ints, Rows
from keyblock.text.terms import TermReader

LONG_SHARE = 0.5  # a text with more of its characters in long words is left to the tokenizer: there is little to look up
HUGE = 1 << 16  # characters of a word that leave its text to the tokenizer, too: lists of its tokens would hold up other threads


class PageReader(ABC):
    """Reads texts as the tokenizer and the analyzer would. Safe to use from several threads.

    Args:
        analyzer: finds terms.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer, self.terms = analyzer, TermReader(analyzer)

    @abstractmethod
    def page(self, texts: Sequence[str]) -> Page:
        """The texts, at least one, cut into stretches."""

    @abstractmethod
    def looked_up(self, page: Page) -> tuple[Rows, Runs]:
        """The tokens of each word of the page, as in Words, and its runs."""

    def read(self, texts: Sequence[str]) -> list[ReadWords | None]:
        """A reading of each text; None for one that is mostly long words, or holds a huge one."""
        found: list[ReadWords | None] = [None] * len(texts)
        page = self.page(texts)
        left = _left(page)
        kept = np.flatnonzero(~left).tolist()
        if left.any():
            page = self.page([texts[i] for i in kept])
        for i, reading in zip(kept, self._readings(page), strict=True):
            found[i] = reading
        return found

    def encoded(self, texts: Sequence[str], encodings: Sequence[Encoding]) -> list[ReadWords]:
        """Readings of texts whose tokens the tokenizer found."""
        text, codes, bounds = joined_codes(texts)
        runs, found = self.terms.runs(text, codes), list[ReadWords]()
        for part, of_text, encoding in zip(texts, _cut(runs, bounds), encodings, strict=True):
            heads, tails = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2).T
            ids = np.asarray(encoding.ids, dtype=np.int32)
            found.append(ReadWords(part, self._analyzer, ids, heads.copy(), tails.copy(), of_text))
        return found

    def _readings(self, page: Page) -> Iterator[ReadWords]:
        """A reading of each text of the page."""
        tokens, runs = self.looked_up(page)
        ids, heads, tails = tokens.columns
        begins = np.repeat(page.heads[: page.n_words], tokens.counts)
        heads, tails = heads + begins, tails + begins
        token_bounds = pairwise(np.append(0, np.cumsum(tokens.counts))[page.first_words].tolist())
        for text, start, token, of_text in zip(
            page.texts, page.bounds[:-1].tolist(), token_bounds, _cut(runs, page.bounds), strict=True
        ):
            yield ReadWords(
                text=text,
                analyzer=self._analyzer,
                ids=ids[slice(*token)].copy(),  # a view would keep the tokens of all texts alive
                heads=heads[slice(*token)] - start,
                tails=tails[slice(*token)] - start,
                runs=of_text,
            )


def _cut(runs: Runs, bounds: NDArray[np.intp]) -> Iterator[Runs]:
    """The runs of each text of a page."""
    starts = bounds[:-1].astype(np.int32)
    for start, (first, last) in zip(starts, pairwise(np.searchsorted(runs.heads, bounds).tolist()), strict=True):
        yield Runs(runs.heads[first:last] - start, runs.tails[first:last] - start, runs.keys[first:last].copy())


def runs_of(page: Page, numbers: Ints, words: Words) -> Runs:
    """The runs of the page, from the numbers of these, shape (n_runs,)."""
    counts, (keys,) = words.keys.taken(numbers)
    runs = page.runs if len(keys) == len(counts) else np.repeat(page.runs, counts)  # each has one at least
    return Runs(page.heads[runs], page.tails[runs], keys)


def long_words(page: Page) -> NDArray[np.intp]:
    """Which words are too long to be remembered."""
    return np.flatnonzero(page.tails[: page.n_words] - page.heads[: page.n_words] > LONGEST)


def _left(page: Page) -> NDArray[np.bool_]:
    """Whether each text is left to the tokenizer, shape (n_texts,)."""
    long = long_words(page)
    documents, lengths = page.documents(page.heads[long]), page.tails[long] - page.heads[long]
    within = np.bincount(documents, lengths, minlength=len(page.texts))
    left: NDArray[np.bool_] = within > LONG_SHARE * np.diff(page.bounds)
    left[documents[lengths > HUGE]] = True
    return left
