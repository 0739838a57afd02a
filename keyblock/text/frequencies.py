"""Document frequencies: in how many documents of the training collection each term occurs. A bundle holds this table.

A request has no collection to count in, and its candidates all match the query, so the frequencies cannot be counted when serving.
"""

from collections import Counter
from collections.abc import Iterable
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
