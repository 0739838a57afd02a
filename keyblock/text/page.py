"""Texts under each other, cut into the stretches that are looked up; `keyblock.text.words` says what these are."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyblock.text.characters import Kind
from keyblock.text.rows import Ints
from keyblock.text.units import Borders

Flags = NDArray[np.bool_]


class Page(NamedTuple):
    """Texts with a character between them.

    Attributes:
        texts: on the page.
        text, codes: the characters, and their code points, shape (n_characters,).
        bounds: shape (n_texts + 1,), where each text starts; the last is where one more would.
        heads, tails: shape (n_words + n_parts,), where words start and end, and then the runs that are no words.
        n_words: how many of these are words.
        runs: shape (n_runs,), which of these are runs, in the order of the text, where runs are looked up with words.
    """

    texts: Sequence[str]
    text: str
    codes: NDArray[np.uint32]
    bounds: NDArray[np.intp]
    heads: Ints
    tails: Ints
    n_words: int
    runs: NDArray[np.intp]

    @classmethod
    def of(cls, texts: Sequence[str], kinds: NDArray[np.uint8], term: Flags) -> Self:
        """The page of these texts.

        Args:
            texts: at least one.
            kinds, term: of each code point; see `keyblock.text.characters`.
        """
        text, codes, bounds = joined_codes(texts)
        found, in_run = kinds[codes], term[codes]
        if (found == Kind.ODD).any():
            odd = odd_stretches(found)
            found[odd] = Kind.LETTER
            in_run |= odd
        heads, tails = stretches(found == Kind.LETTER, found == Kind.BREAK)
        run_heads, run_tails = stretches(in_run)
        runs = _same(heads, tails, run_heads, run_tails, len(codes))
        part = np.flatnonzero(runs < 0)
        runs[part] = np.arange(len(heads), len(heads) + len(part))
        all_heads, all_tails = np.append(heads, run_heads[part]), np.append(tails, run_tails[part])
        return cls(texts, text, codes, bounds, all_heads, all_tails, len(heads), runs)

    @classmethod
    def of_units(cls, texts: Sequence[str], borders: Borders) -> Self:
        """The page of these texts, at least one, whose words are units; it has no runs.

        Args:
            texts: at least one.
            borders: of units.
        """
        text, codes, bounds = joined_codes(texts)
        heads, tails = borders.units(codes, bounds)
        return cls(texts, text, codes, bounds, heads, tails, len(heads), np.zeros(0, np.intp))

    @property
    def first_words(self) -> NDArray[np.intp]:
        """Each text's first word, shape (n_texts + 1,)."""
        return np.searchsorted(self.heads[: self.n_words], self.bounds)

    def documents(self, places: Ints) -> NDArray[np.intp]:
        """The numbers of the texts that hold these places."""
        return np.searchsorted(self.bounds, places, side="right") - 1

    def spell(self, stretches: NDArray[np.intp]) -> list[str]:
        """The characters of some stretches."""
        heads, tails = self.heads[stretches].tolist(), self.tails[stretches].tolist()
        return [self.text[head:tail] for head, tail in zip(heads, tails, strict=True)]


def joined_codes(texts: Sequence[str]) -> tuple[str, NDArray[np.uint32], NDArray[np.intp]]:
    """The texts with a character between them, its code points, and the bounds of each text."""
    text = "\n".join(texts)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return text, codes, np.cumsum([0, *(len(text) + 1 for text in texts)])


def odd_stretches(kinds: NDArray[np.uint8]) -> Flags:
    """Whether each character stands in a stretch between spaces that holds an odd one."""
    spaces = np.concatenate([[-1], np.flatnonzero(kinds == Kind.SPACE), [len(kinds)]])
    ended = np.zeros(len(spaces), np.bool_)  # whether such a stretch ends at the space
    ended[np.searchsorted(spaces, np.flatnonzero(kinds == Kind.ODD))] = True
    tails = np.flatnonzero(ended)
    steps = np.zeros(len(kinds) + 1, np.int8)
    steps[spaces[tails - 1] + 1], steps[spaces[tails]] = 1, -1
    return np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)


def _same(heads: Ints, tails: Ints, other_heads: Ints, other_tails: Ints, n_characters: int) -> NDArray[np.intp]:
    """For each of the other stretches, which stretch it is; -1 for none; shape (n_others,)."""
    number = np.full(n_characters, -1, np.int32)
    number[heads] = np.arange(len(heads))
    found = number[other_heads].astype(np.intp)
    met = np.flatnonzero(found >= 0)
    found[met[tails[found[met]] != other_tails[met]]] = -1
    return found


def stretches(flags: Flags, alone: Flags | None = None) -> tuple[Ints, Ints]:
    """Where runs of true flags start and end, shape (n,) each; each place that is `alone`, and never flagged, is a run as well."""
    begins, ends = flags.copy(), flags.copy()
    begins[1:] &= ~flags[:-1]
    ends[:-1] &= ~flags[1:]
    if alone is not None:
        begins |= alone
        ends |= alone
    return np.flatnonzero(begins).astype(np.int32), np.flatnonzero(ends).astype(np.int32) + np.int32(1)
