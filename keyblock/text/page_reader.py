"""Reading texts under each other: what each stretch becomes is looked up, for all texts at once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from keyblock.text.analyzer import Analyzer
from keyblock.text.hashing import LONGEST
from keyblock.text.known import Words
from keyblock.text.page import Page
from keyblock.text.read_words import ReadWords, Runs
from keyblock.text.rows import Ints, Rows

LONG_SHARE = 0.5  # a text with more of its characters in long words is left to the tokenizer: there is little to look up
HUGE = 1 << 16  # characters of a word that leave its text to the tokenizer, too: lists of its tokens would hold up other threads


class PageReader(ABC):
    """Reads texts as the tokenizer and the analyzer would. Safe to use from several threads.

    Args:
        analyzer: finds terms.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer

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

    def _readings(self, page: Page) -> Iterator[ReadWords]:
        """A reading of each text of the page."""
        tokens, runs = self.looked_up(page)
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
