"""Queries as people type them: keywords, lower case, typing errors, no question mark, a long story around the request."""

from collections.abc import Callable

import numpy as np

from keyblock.text.analyzer import STOP_WORDS
from training.derive.drawing import TEXTS, by_share, one_of, some_of

ASKING = frozenset(
    "how what which who whom whose why when where do does did can could should would will is are was were may".split()
)
KEYS = {
    "a": "sq", "b": "vn", "c": "xv", "d": "sf", "e": "wr", "f": "dg", "g": "fh", "h": "gj", "i": "uo",
    "j": "hk", "k": "jl", "l": "k", "m": "n", "n": "bm", "o": "ip", "p": "o", "q": "w", "r": "et", "s": "ad",
    "t": "ry", "u": "yi", "v": "cb", "w": "qe", "x": "zc", "y": "tu", "z": "x",
}  # fmt: skip
SHORTEST = 4  # letters of a word that gets a typing error


def keywords(query: str) -> str:
    """The query's content words in lower case, in their order; the whole query if it has none."""
    words = [word.strip("?!.,;:\"'()") for word in query.lower().split()]
    kept = [word for word in words if word and word not in STOP_WORDS and word not in ASKING]
    return " ".join(kept) or query


def _mistyped(query: str, rng: np.random.Generator) -> str:
    words = query.split(" ")
    long = [place for place, word in enumerate(words) if len(word) >= SHORTEST and word.isalpha()]
    for place in rng.permutation(long)[: int(rng.integers(1, 3))] if long else ():
        words[place] = typing_error(words[place], rng)
    return " ".join(words)


def typing_error(word: str, rng: np.random.Generator) -> str:
    """The word with one letter left out, doubled, exchanged with the next, or taken from a neighbouring key."""
    place, kind = int(rng.integers(1, len(word) - 1)), int(rng.integers(4))
    before, letter, after = word[:place], word[place], word[place + 1 :]
    if kind == 0:
        return before + after
    if kind == 1:
        return before + letter * 2 + after
    if kind == 2:
        return before + after[:1] + letter + after[1:]
    return before + one_of(KEYS.get(letter.lower(), letter), rng) + after


def _wordy(query: str, rng: np.random.Generator) -> str:
    stories = some_of(TEXTS["stories"], int(rng.integers(1, 4)), rng)
    bare = query.rstrip("?!. ")
    request = one_of(TEXTS["requests"], rng).format(q=bare[:1].lower() + bare[1:])
    closing = [one_of(TEXTS["closings"], rng)] if rng.random() < 0.3 else []
    mark = "?" if rng.random() < 0.3 else "."
    return " ".join([*stories, request + mark, *closing])


FORMS: dict[str, tuple[float, Callable[[str, np.random.Generator], str]]] = {
    "as it is": (0.45, lambda query, _: query),
    "keywords": (0.15, lambda query, _: keywords(query)),
    "lower case": (0.12, lambda query, _: query.lower().rstrip("?!. ")),
    "no mark": (0.08, lambda query, _: query.rstrip("?!. ")),
    "typing errors": (0.08, _mistyped),
    "wordy": (0.12, _wordy),
}
"""The forms of a query, each with its share and the function that makes it."""


def typed(query: str, rng: np.random.Generator) -> str:
    """The query in a random form."""
    return by_share(FORMS, rng)(query, rng)
