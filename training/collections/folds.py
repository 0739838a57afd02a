"""k-fold cross-validation over queries: every query is tested once, by a model that never saw it.

KeyB (section 6.1) measures Robust04 so: of five folds three train, one validates and one tests, in every rotation. Each rotation is
a collection directory that links to the original's files, so that every command works on it. The runs of the test folds join into
one run over all queries. (A collection described in YAML names its folds there: training.collections.descriptions.)
"""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from training.collections.lines import numbered_lines
from training.collections.types import FileError


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


def read_folds(paths: Sequence[Path]) -> list[list[str]]:
    """Read published folds: a file of query ids for each, or one JSON file with a list of lists of ids.

    Raises FileError when they are not folds: fewer than three, an empty one, or a query in two of them.
    """
    folds = (
        _json_folds(paths[0]) if paths[0].suffix == ".json" else [[line.strip() for _, line in numbered_lines(p)] for p in paths]
    )
    named = ", ".join(map(str, paths))
    if len(folds) < 3 or not all(folds):
        raise FileError(
            f"{named}: {len(folds)} folds of {', '.join(str(len(fold)) for fold in folds)} queries; three or more are needed"
        )
    if duplicate := _first_duplicate(query for fold in folds for query in fold):
        raise FileError(f"{named}: query {duplicate} stands twice; a query belongs to one fold")
    return folds


def _json_folds(path: Path) -> list[list[str]]:
    try:
        folds = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(f"{path}: is not JSON ({error})") from None
    if not isinstance(folds, list) or not all(isinstance(fold, list) for fold in folds):
        raise FileError(f"{path}: must be a list of folds, each a list of query ids")
    return [list(map(str, fold)) for fold in folds]


def _first_duplicate(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def rotations(folds: Sequence[Sequence[str]]) -> list[Rotation]:
    """All rounds: round i tests on fold i, validates on the next fold, and trains on the rest."""
    rounds = []
    for test in range(len(folds)):
        dev = (test + 1) % len(folds)
        train = [query for number, fold in enumerate(folds) if number not in (test, dev) for query in fold]
        rounds.append(Rotation(train, list(folds[dev]), list(folds[test])))
    return rounds
