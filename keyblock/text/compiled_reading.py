"""A text as `keyblock_native` reads it: its tokens, and the runs that its terms are made of."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.text.reading import Ints, Reading, Terms, concatenated

LONGEST = 64  # characters of the longest stretch that is remembered, as in native/src/pieces.hpp


class Runs(NamedTuple):
    """The runs of a text, in order; `keyblock.text.compiled` says what a run is.

    Attributes:
        heads, tails: where the runs start and end, shape (n,); a run with several terms is repeated for each of them.
        keys: the keys of their terms, shape (n,); 0 for a run without a term (a stop word) and for a long run, whose terms are not
            known.
    """

    heads: Ints
    tails: Ints
    keys: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CompiledReading(Reading):
    """A Reading that looks its terms up in its runs.

    Attributes:
        runs: the runs of the text.
    """

    runs: Runs

    def terms(self, starts: Ints, ends: Ints, pause: Callable[[int], object] = int) -> Terms:
        """See Reading. The analyzer finds the terms of blocks that start or end within a run, or hold a long run."""
        first, last = np.searchsorted(self.runs.tails, starts, side="right"), np.searchsorted(self.runs.heads, ends)
        kept = np.cumsum(np.append(0, self.runs.keys != 0))
        keys = self.runs.keys[self.runs.keys != 0]
        blocks: list[Any] = [keys[start:end] for start, end in zip(kept[first].tolist(), kept[last].tolist(), strict=True)]
        for i in np.flatnonzero(self._cut(first, starts, last, ends)):
            blocks[i] = self.analyzer.keys(self.text[starts[i] : ends[i]])
            pause(0)
        return concatenated(blocks)

    def _cut(self, first: NDArray[np.intp], starts: Ints, last: NDArray[np.intp], ends: Ints) -> NDArray[np.bool_]:
        """Whether each block, with runs `first` up to `last`, starts or ends within a run, or holds a long run."""
        heads, tails, _ = self.runs
        long = np.flatnonzero(tails - heads > LONGEST)
        cut: NDArray[np.bool_] = np.searchsorted(long, first) < np.searchsorted(long, last)
        filled = np.flatnonzero(first < last)
        cut[filled] |= (heads[first[filled]] < starts[filled]) | (tails[last[filled] - 1] > ends[filled])
        return cut


def joined(text: str, parts: Sequence[Reading], *, apart: bool) -> Reading:
    """The reading of a text, joined from the readings of its parts.

    Args:
        text: the whole text.
        parts: the readings of its parts in order, at least one.
        apart: whether no run crosses the end of a part: then the text's runs are those of its parts, if all parts have runs.
    """
    starts = np.cumsum([0, *(len(part.text) for part in parts[:-1])], dtype=np.int32).tolist()

    def column(values: Iterable[Ints]) -> Ints:
        return np.concatenate([places + start for places, start in zip(values, starts, strict=True)], dtype=np.int32)

    ids, analyzer = np.concatenate([part.ids for part in parts]), parts[0].analyzer
    heads, tails = column(part.heads for part in parts), column(part.tails for part in parts)
    runs = [part.runs for part in parts if isinstance(part, CompiledReading)]
    if not apart or len(runs) < len(parts):
        return Reading(text, analyzer, ids, heads, tails)
    keys = np.concatenate([part.keys for part in runs])
    run_heads, run_tails = column(part.heads for part in runs), column(part.tails for part in runs)
    return CompiledReading(text, analyzer, ids, heads, tails, Runs(run_heads, run_tails, keys))
