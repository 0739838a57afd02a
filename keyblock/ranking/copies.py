"""Sentences that say the same: equal but for case, width, spaces, and the marks around them, or near copies.

Two sentences are near copies if nine tenths of the runs of eight characters that either has are in both, and their numbers are the
same. One word in a sentence of 25 makes them differ.
"""

import math
import re
from typing import NamedTuple

from keyblock.text.normalization import caseless
from keyblock.text.sentences import BULLETS, CLOSING, FULL_STOPS, MARKS, OPENING

RUN = 8
ALIKE = 0.9
_BULLET = re.compile(rf"(?:[{BULLETS}]\s+)+")
_AROUND = "".join(set(CLOSING + OPENING + MARKS + FULL_STOPS) - set(BULLETS)) + " "
_NUMBER = re.compile(r"\d+")


class _Known(NamedTuple):
    runs: frozenset[str]
    numbers: list[str]


class Copies:
    """The sentences seen so far."""

    def __init__(self) -> None:
        self._exact: set[str] = set()
        self._near: dict[str, list[_Known]] = {}

    def add(self, sentence: str) -> bool:
        """Add a sentence; False if it is a copy of one that was added."""
        text = _BULLET.sub("", " ".join(caseless(sentence).split()), count=1).strip(_AROUND)
        if text in self._exact:
            return False
        self._exact.add(text)
        runs = frozenset(text[at : at + RUN] for at in range(len(text) - RUN + 1))
        known = _Known(runs, _NUMBER.findall(text))
        # sets that are ALIKE share one of the first runs of each, in any fixed order
        first = sorted(runs)[: len(runs) - math.ceil(ALIKE * len(runs)) + 1]
        if any(_alike(known, other) for run in first for other in self._near.get(run, ())):
            return False
        for run in first:
            self._near.setdefault(run, []).append(known)
        return True


def _alike(one: _Known, other: _Known) -> bool:
    both = len(one.runs & other.runs)
    return one.numbers == other.numbers and both >= ALIKE * (len(one.runs) + len(other.runs) - both)
