"""k-fold cross-validation over queries: every query is tested once, by a model that never saw it.

KeyB (section 6.1) measures Robust04 so: of five folds three train, one validates and one tests, in every rotation. A description of
a collection says what its folds are; a round of them makes up its splits train, dev and test.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from training.data.descriptions import ALL, Description
from training.data.types import CollectionError


class Rotation(NamedTuple):
    """The queries of one round of cross-validation."""

    train: list[str]
    dev: list[str]
    test: list[str]


def make_folds(queries: Iterable[str], count: int, seed: int = 0) -> list[list[str]]:
    """Deal the queries into folds whose sizes differ by one at most. The order of `queries` does not matter.

    Raises ValueError for fewer than three folds, or more folds than queries.
    """
    shuffled = sorted(set(queries))
    random.Random(seed).shuffle(shuffled)
    if not 3 <= count <= len(shuffled):
        raise ValueError(
            f"{len(shuffled)} queries cannot be dealt into {count} folds: one tests, one validates, at least one trains"
        )
    return [sorted(shuffled[fold::count]) for fold in range(count)]


def rotations(folds: Sequence[Sequence[str]]) -> list[Rotation]:
    """All rounds: round i tests on fold i, validates on the next fold, and trains on the rest."""
    rounds = []
    for test in range(len(folds)):
        dev = (test + 1) % len(folds)
        train = [query for number, fold in enumerate(folds) if number not in (test, dev) for query in fold]
        rounds.append(Rotation(train, list(folds[dev]), list(folds[test])))
    return rounds


@dataclass(frozen=True)
class Round:
    """One round. Without folds in the description, every split stands for itself.

    Attributes:
        description: names the folds, or says into how many the queries of the split `all` are dealt.
        number: number of the test fold, from 1; 0 stands for the first, and adds nothing to the name.

    Raises CollectionError when there is no such fold, or the description lacks a split that the folds need.
    """

    description: Description
    number: int = 0

    def __post_init__(self) -> None:
        name, folds, count = self.description.name, self.description.folds, self.count
        if self.number > count:
            raise CollectionError(f"{name}#{self.number}: there is no such fold; there are {count}")
        if count in (1, 2):
            raise CollectionError(f"{name}: {count} folds are too few; one tests, one validates, at least one trains")
        needed = folds if not isinstance(folds, int) else (ALL,) if folds else ()
        for split in needed:
            if split not in self.description.splits:
                raise CollectionError(f"{name}: its folds need the split {split!r}, which it does not describe")

    @property
    def name(self) -> str:
        """The description's name, with the number of the fold if one was named."""
        return self.description.name + (f"-fold-{self.number}" if self.number else "")

    @property
    def count(self) -> int:
        """How many folds there are."""
        folds = self.description.folds
        return folds if isinstance(folds, int) else len(folds)

    def combines(self, split: str) -> bool:
        """Whether a split combines folds."""
        return self.count > 0 and split in ("train", "dev", "test") and split not in self.description.splits

    def sources(self, split: str) -> list[str]:
        """The described splits that a split combines; the split itself if it combines none."""
        if not self.combines(split):
            return [split]
        folds = self.description.folds
        return [ALL] if isinstance(folds, int) else self._rotated([[name] for name in folds], split)

    def members(self, split: str, queries: Iterable[str]) -> set[str]:
        """The queries that belong to a split, out of all queries of its sources."""
        folds = self.description.folds
        return set(self._rotated(make_folds(queries, folds), split) if isinstance(folds, int) else queries)

    def in_words(self, split: str) -> str:
        """One phrase that says which splits a split combines."""
        return f"round {max(self.number, 1)} of {self.count}, of {', '.join(self.sources(split))}"

    def _rotated(self, folds: list[list[str]], split: str) -> list[str]:
        members: list[str] = getattr(rotations(folds)[max(self.number, 1) - 1], split)
        return members
