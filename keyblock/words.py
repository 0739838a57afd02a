"""Reading texts word by word: what each word becomes is looked up, for all texts at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyblock.characters import Kind, word_characters
from keyblock.lexicon import LONGEST, Hasher, Lexicon
from keyblock.reading import Ints, Terms
from keyblock.text import Analyzer
from keyblock.tokenization import Tokenizer


class Runs(NamedTuple):
    """The words that terms are made of, in order.

    Attributes:
        heads, tails: shape (n,), where they start and end in the text; a stretch with several terms stands there for each,
            one without any once.
        keys: shape (n,), their terms' keys; 0 where there is no term (a stop word).
    """

    heads: Ints
    tails: Ints
    keys: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadWords:
    """What the words of a text are together.

    Attributes:
        text: read.
        analyzer: finds the terms of blocks that start or end within a word.
        ids, heads, tails: shape (n_tokens,): the tokens, and where they start and end in the text.
        runs: its terms.
    """

    text: str
    analyzer: Analyzer
    ids: Ints
    heads: Ints
    tails: Ints
    runs: Runs

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
        """Whether a block, of runs `first` up to `last`, starts or ends within one."""
        cut = np.zeros(len(first), dtype=np.bool_)
        some = np.flatnonzero(first < last)
        cut[some] = (self.runs.heads[first[some]] < starts[some]) | (self.runs.tails[last[some] - 1] > ends[some])
        return cut


class WordReader:
    """Reads texts as the tokenizer and the analyzer would. Safe to use from several threads.

    Args:
        tokenizer: reads each word once.
        analyzer: as well.
        kinds: what each code point is to the tokenizer, shape (CODES,).
    """

    def __init__(self, tokenizer: Tokenizer, analyzer: Analyzer, kinds: NDArray[np.uint8]) -> None:
        self._analyzer, self._kinds, self._word = analyzer, kinds, word_characters()
        self._lexicon, self._hasher = Lexicon(tokenizer, analyzer), Hasher()

    def read(self, texts: Sequence[str]) -> list[ReadWords | None]:
        """A reading of each text; None for one with a word too long to be looked up."""
        found: list[ReadWords | None] = [None] * len(texts)
        page = self._page(texts)
        left = set(page.documents(page.heads[page.tails - page.heads > LONGEST]).tolist())
        plain = [i for i in range(len(texts)) if i not in left]
        if left:
            page = self._page([texts[i] for i in plain])
        for i, reading in zip(plain, self._looked_up(page), strict=True):
            found[i] = reading
        return found

    def _page(self, texts: Sequence[str]) -> "Page":
        return Page.of(texts, self._kinds, self._word)

    def _looked_up(self, page: "Page") -> Iterator[ReadWords]:
        """A reading of each text of the page."""
        numbers, words = self._lexicon.find(self._hasher.hashes(page.codes, page.heads, page.tails), page.spell)
        counts = words.counts[numbers]
        ends = np.cumsum(counts)
        tokens = np.arange(counts.sum()) + np.repeat(words.firsts[numbers] - (ends - counts), counts)
        begins = np.repeat(page.heads, counts)
        ids, heads, tails = words.ids[tokens], begins + words.heads[tokens], begins + words.tails[tokens]
        runs = self._runs(page, words.keys[numbers])
        token_bounds = pairwise(np.append(0, ends)[page.first_words].tolist())
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

    def _runs(self, page: "Page", word_keys: NDArray[np.int64]) -> Runs:
        """All terms of a page, from those of its words; a stretch that the tokenizer read itself is a run for each of its terms."""
        keys, whole = page.run_keys(word_keys)
        for i in np.flatnonzero(~whole).tolist():  # a part of a word, as the 5 of 5€, or several, as a_b
            keys[i] = next(iter(self._analyzer.keys(page.text[page.run_heads[i] : page.run_tails[i]])), 0)
        odd = [(head, tail, key) for head, tail in page.odd for key in self._analyzer.keys(page.text[head:tail]) or [0]]
        if not odd:
            return Runs(page.run_heads, page.run_tails, keys)
        heads, tails, more = zip(*odd, strict=True)
        at = np.searchsorted(page.run_heads, heads)
        return Runs(np.insert(page.run_heads, at, heads), np.insert(page.run_tails, at, tails), np.insert(keys, at, more))


class Page(NamedTuple):
    """Texts under each other, a character between them.

    Attributes:
        texts: on the page.
        text, codes: the characters, and their code points, shape (n_characters,).
        bounds: shape (n_texts + 1,), where each text starts; the last is where one more would.
        heads, tails: shape (n_words,), where the tokenizer's words start and end.
        run_heads, run_tails: shape (n_runs,), where the runs of characters that terms are made of start and end.
        odd: where the words start and end that hold an odd character; they are in `heads`, but not in `run_heads`.
    """

    texts: Sequence[str]
    text: str
    codes: NDArray[np.uint32]
    bounds: NDArray[np.intp]
    heads: Ints
    tails: Ints
    run_heads: Ints
    run_tails: Ints
    odd: list[tuple[int, int]]

    @classmethod
    def of(cls, texts: Sequence[str], kinds: NDArray[np.uint8], word: NDArray[np.bool_]) -> Self:
        """The page of these texts.

        Args:
            texts: at least one.
            kinds, word: of each code point; see `keyblock.characters`.
        """
        text = "\n".join(texts)
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        found, in_run = kinds[codes], word[codes]
        odd = _odd(found)
        for head, tail in odd:
            found[head:tail], in_run[head:tail] = Kind.LETTER, False
        alone = found == Kind.BREAK
        heads, tails = _stretches(found == Kind.LETTER, alone)
        bounds = np.cumsum([0, *(len(text) + 1 for text in texts)])
        return cls(texts, text, codes, bounds, heads, tails, *_stretches(in_run), odd)

    @property
    def first_words(self) -> NDArray[np.intp]:
        """Each text's first word, shape (n_texts + 1,)."""
        return np.searchsorted(self.heads, self.bounds)

    def run_keys(self, word_keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The keys of the runs that are whole words, from those of the words, and which runs are, shape (n_runs,) each."""
        if not len(self.run_heads) or not len(self.heads):
            return np.zeros(len(self.run_heads), np.int64), np.zeros(len(self.run_heads), np.bool_)
        word_at = np.zeros(len(self.codes), np.int32)
        word_at[self.heads] = np.arange(len(self.heads))
        word = word_at[self.run_heads]
        return word_keys[word], (self.heads[word] == self.run_heads) & (self.tails[word] == self.run_tails)

    def documents(self, places: Ints) -> NDArray[np.intp]:
        """The numbers of the texts that hold these places."""
        return np.searchsorted(self.bounds, places, side="right") - 1

    def spell(self, words: NDArray[np.intp]) -> list[str]:
        """The words with these numbers."""
        return [self.text[self.heads[i] : self.tails[i]] for i in words.tolist()]


def _odd(kinds: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Where stretches without a space start and end that hold an odd character, ascending."""
    places = np.flatnonzero(kinds == Kind.ODD)
    if not len(places):
        return []
    heads, tails = _stretches(kinds != Kind.SPACE)
    stretches = np.unique(np.searchsorted(heads, places, side="right") - 1)
    return list(zip(heads[stretches].tolist(), tails[stretches].tolist(), strict=True))


def _stretches(flags: NDArray[np.bool_], alone: NDArray[np.bool_] | None = None) -> tuple[Ints, Ints]:
    """Where runs of true flags start and end, shape (n,) each; each place that is `alone`, and never flagged, is a run as well."""
    begins, ends = flags.copy(), flags.copy()
    begins[1:] &= ~flags[:-1]
    ends[:-1] &= ~flags[1:]
    if alone is not None:
        begins |= alone
        ends |= alone
    return np.flatnonzero(begins).astype(np.int32), np.flatnonzero(ends).astype(np.int32) + np.int32(1)
