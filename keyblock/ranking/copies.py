"""Sentences that say the same: equal but for case, width, spaces, and the marks around them, or near copies.

Two sentences are near copies if nine tenths of the runs of eight characters that either has are in both, and their numbers are the
same. One word in a sentence of 25 makes them differ.
"""

import math
import re

from keyblock.text.sentences import BULLETS, CLOSING, FULL_STOPS, MARKS, OPENING
from keyblock.text.universal import caseless

RUN = 8
ALIKE = 0.9
_BULLET = re.compile(rf"(?:[{BULLETS}]\s+)+")
_AROUND = "".join(set(CLOSING + OPENING + MARKS + FULL_STOPS) - set(BULLETS)) + " "
_NUMBER = re.compile(r"\d+")


class Copies:
    """The sentences seen so far."""

    def __init__(self) -> None:
        self._exact: set[str] = set()
        self._near: dict[tuple[str, str], list[frozenset[str]]] = {}  # runs of sentences, by one of them and by their numbers

    def add(self, sentence: str) -> bool:
        """Add a sentence; False if it is a copy of one that was added."""
        text = _BULLET.sub("", " ".join(caseless(sentence).split()), count=1).strip(_AROUND)
        if text in self._exact:
            return False
        self._exact.add(text)
        runs = frozenset(text[at : at + RUN] for at in range(len(text) - RUN + 1))
        numbers = " ".join(_NUMBER.findall(text))
        # sets that are ALIKE share one of the first runs of each, in any fixed order
        first = [(run, numbers) for run in sorted(runs)[: len(runs) - math.ceil(ALIKE * len(runs)) + 1]]
        if any(_alike(runs, other) for other in {other for key in first for other in self._near.get(key, ())}):
            return False
        for key in first:
            self._near.setdefault(key, []).append(runs)
        return True


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    both = len(one & other)
    return both >= ALIKE * (len(one) + len(other) - both)
