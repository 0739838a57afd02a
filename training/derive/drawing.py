"""Random draws of what lessons are made of, and the texts that they add to a collection's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import yaml

T = TypeVar("T")
TEXTS: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "texts.yaml").read_text(encoding="utf-8"))


def one_of(items: Sequence[T], rng: np.random.Generator) -> T:
    """One of the items, each as likely as another."""
    return items[int(rng.integers(len(items)))]


def some_of(items: Sequence[T], count: int, rng: np.random.Generator) -> list[T]:
    """So many different ones of the items, or all, in a random order."""
    count = min(count, len(items))
    return [items[place] for place in rng.choice(len(items), count, replace=False)] if count > 0 else []


def by_share(kinds: Mapping[str, tuple[float, T]], rng: np.random.Generator) -> T:
    """One of the kinds, in proportion to the share that stands in front of it."""
    shares = np.asarray([share for share, _ in kinds.values()])
    return list(kinds.values())[int(rng.choice(len(kinds), p=shares / shares.sum()))][1]
