"""Document frequencies: in how many documents of the training collection each term occurs. A bundle holds this table.

A request has no collection to count in, and its candidates all match the query, so the frequencies cannot be counted when serving.
They also tell which words of a query are likely typing errors.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.text.analyzer import Analyzer, term_key


class DocumentFrequencies:
    """Document frequencies by term; a term that is not in the table has frequency 0.

    File format: UTF-8 lines, the first ``documents<TAB>N``, then ``term<TAB>df``, most frequent first.
    """

    def __init__(self, n_documents: int, frequencies: dict[str, int]) -> None:
        self.n_documents = n_documents
        self.frequencies = frequencies
        keys = map(term_key, frequencies) if native.core is None else native.core.term_keys(list(frequencies)).tolist()
        self._by_key = dict(zip(keys, frequencies.values(), strict=True))

    @classmethod
    def count(cls, texts: Iterable[str], analyzer: Analyzer, at_least: int = 2) -> "DocumentFrequencies":
        """Count over documents; terms in fewer than `at_least` documents are left out (they cost space and say little)."""
        counts: Counter[str] = Counter()
        n_documents = 0
        for text in texts:
            counts.update(set(analyzer.terms(text)))
            n_documents += 1
        return cls(n_documents, {term: df for term, df in counts.most_common() if df >= at_least})

    def __len__(self) -> int:
        return len(self.frequencies)

    @property
    def known(self) -> NDArray[np.int64]:
        """Keys of the terms that occur, shape (n,)."""
        return np.asarray([key for key, df in self._by_key.items() if df], dtype=np.int64)

    def of(self, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """The document frequency of each term key, shape (n_terms,)."""
        return np.fromiter((self._by_key.get(key, 0) for key in keys.tolist()), dtype=np.float64, count=len(keys))

    def write(self, path: Path) -> None:
        """Write the table to `path`."""
        lines = [f"documents\t{self.n_documents}", *(f"{term}\t{df}" for term, df in self.frequencies.items())]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "DocumentFrequencies":
        """Read a table. Raises ValueError, which names the line, if the file is not a table."""
        try:
            head, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
        label, _, total = head.partition("\t")
        if label != "documents" or not total.isdecimal():
            raise ValueError(f"{path}: line 1 must be 'documents<TAB>N', not {head[:40]!r}")
        rows = [line.rpartition("\t") for line in lines]
        frequencies = {term: int(df) for term, _, df in rows if term and df.isdecimal()}
        if len(frequencies) < len(rows):  # else every line is a row
            for number, (term, _, df) in enumerate(rows, 2):
                if not term or not df.isdecimal():
                    raise ValueError(f"{path}: line {number} must be 'term<TAB>df', not {lines[number - 2][:40]!r}")
        return cls(int(total), frequencies)


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHORTEST, LONGEST = 5, 20  # letters of a word that is mended
LEAST = 5  # documents that have the word that was meant
MOST_MENDED = 8  # words of a query
_WORD = re.compile(r"[^\W\d_]+")


class Spelling:
    """Mends typing errors in English queries.

    A word that neither the model nor the table knows becomes the most frequent known word that is one error away: one letter too
    many, too few, wrong, or two that changed places. Four of five errors are of these (Damerau 1964); the first letter stays.

    Args:
        frequencies: the table.
        analyzer: makes the table's terms.
        is_token: whether a word is a token of the model.
    """

    def __init__(self, frequencies: DocumentFrequencies, analyzer: Analyzer, is_token: Callable[[str], bool]) -> None:
        self._counts, self._terms, self._is_token = frequencies.frequencies, analyzer.terms, is_token

    def mended(self, text: str) -> dict[str, str]:
        """The words of `text` that are mended, in lower case, with the words that were likely meant.

        Nothing is mended where most words are unknown: such a text is in another language, or in none.
        """
        words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
        unknown = [word for word in words if not self._knows(word)]
        if 2 * len(unknown) > len(words):
            return {}
        meant = ((word, self._meant(word)) for word in unknown[:MOST_MENDED] if word.isascii() and SHORTEST <= len(word) <= LONGEST)
        return {word: other for word, other in meant if other}

    @staticmethod
    def replaced(text: str, mended: dict[str, str]) -> str:
        """The text with its mended words."""
        return _WORD.sub(lambda found: mended.get(found[0].lower(), found[0]), text)

    def _knows(self, word: str) -> bool:
        return all(term in self._counts for term in self._terms(word)) or self._is_token(word)

    def _meant(self, word: str) -> str:
        near = (other for other in _one_error_away(word) if self._is_token(other))
        counted = ((max((self._counts.get(term, 0) for term in self._terms(other)), default=0), other) for other in near)
        count, best = max(counted, default=(0, ""))
        return best if count >= LEAST else ""


def _one_error_away(word: str) -> Iterator[str]:
    for place in range(1, len(word) + 1):
        before, after = word[:place], word[place:]
        yield from (before + letter + after for letter in LETTERS)
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in LETTERS)
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
