"""What `keyblock_native` reads: the tokens of a text, and the runs that its terms are made of."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.text.reading import Ints, Reading, Terms, concatenated

LONGEST = 64  # characters of what it remembers, as in native/src/pieces.hpp


class Runs(NamedTuple):
    """The runs of a text, in order; `keyblock.text.compiled` says what a run is.

    Attributes:
        heads, tails: shape (n,), where they start and end; a run with several terms stands there for each, one without any once.
        keys: shape (n,), their terms' keys; 0 where there is no term (a stop word), and for long runs, whose terms are not known.
    """

    heads: Ints
    tails: Ints
    keys: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CompiledReading(Reading):
    """A Reading that looks its terms up.

    Attributes:
        runs: of the text.
    """

    runs: Runs

    def terms(self, starts: Ints, ends: Ints, pause: Callable[[int], object] = int) -> Terms:
        """See Reading; the analyzer finds those of blocks that start or end within a run, or hold a long one."""
        first, last = np.searchsorted(self.runs.tails, starts, side="right"), np.searchsorted(self.runs.heads, ends)
        kept = np.cumsum(np.append(0, self.runs.keys != 0))
        keys = self.runs.keys[self.runs.keys != 0]
        blocks: list[Any] = [keys[start:end] for start, end in zip(kept[first].tolist(), kept[last].tolist(), strict=True)]
        for i in np.flatnonzero(self._cut(first, starts, last, ends)):
            blocks[i] = self.analyzer.keys(self.text[starts[i] : ends[i]])
            pause(0)
        return concatenated(blocks)

    def _cut(self, first: NDArray[np.intp], starts: Ints, last: NDArray[np.intp], ends: Ints) -> NDArray[np.bool_]:
        """Whether a block, of runs `first` up to `last`, starts or ends within one, or holds a long one."""
        heads, tails, _ = self.runs
        long = np.flatnonzero(tails - heads > LONGEST)
        cut: NDArray[np.bool_] = np.searchsorted(long, first) < np.searchsorted(long, last)
        some = np.flatnonzero(first < last)
        cut[some] |= (heads[first[some]] < starts[some]) | (tails[last[some] - 1] > ends[some])
        return cut


def joined(text: str, several: Sequence[Reading], *, apart: bool) -> Reading:
    """The reading of a text from those of its parts, which follow each other, at least one.

    Args:
        text: all of it.
        several: of its parts.
        apart: whether parts end between runs: then those of the parts are the text's, where all parts have some.
    """
    starts = np.cumsum([0, *(len(part.text) for part in several[:-1])], dtype=np.int32).tolist()

    def column(values: Iterable[Ints]) -> Ints:
        return np.concatenate([some + start for some, start in zip(values, starts, strict=True)], dtype=np.int32)

    ids, analyzer = np.concatenate([part.ids for part in several]), several[0].analyzer
    heads, tails = column(part.heads for part in several), column(part.tails for part in several)
    runs = [part.runs for part in several if isinstance(part, CompiledReading)]
    if not apart or len(runs) < len(several):
        return Reading(text, analyzer, ids, heads, tails)
    keys = np.concatenate([some.keys for some in runs])
    run_heads, run_tails = column(some.heads for some in runs), column(some.tails for some in runs)
    return CompiledReading(text, analyzer, ids, heads, tails, Runs(run_heads, run_tails, keys))
