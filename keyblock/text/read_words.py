"""What a text's words are together: its tokens, and the runs that its terms are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from keyblock.text.analyzer import Analyzer
from keyblock.text.hashing import LONGEST
from keyblock.text.reading import Terms
from keyblock.text.rows import Ints


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
