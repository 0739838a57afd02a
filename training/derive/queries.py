"""Queries as people type them: keywords, lower case, typing errors, no question mark, a long story around the request."""

from collections.abc import Callable

import numpy as np

from keyblock.text.analyzer import STOP_WORDS

ASKING = frozenset(
    "how what which who whom whose why when where do does did can could should would will is are was were may".split()
)
STORIES = (
    "I have been working on this since last week and my colleagues could not help me either.",
    "Our team is rather small, we took over the project from somebody who has left, and the notes that we found are old.",
    "First of all thank you for the quick reply to my last message, which solved the other problem.",
    "My sister told me about this page and said that somebody here would know.",
    "We had a long discussion about it at lunch today and everybody was of another opinion.",
    "I read the page twice and went through the whole list, but maybe I missed something obvious.",
    "I am preparing a short talk for next month and want to get the facts right.",
    "This is for a form that I have to hand in on Friday, and the office does not pick up the phone.",
    "It worked for years without any trouble, then we moved to another building and many things changed.",
    "I am not a native speaker, so please excuse my mistakes.",
)
REQUESTS = (
    "I would like to know: {q}",
    "Please tell me {q}",
    "So my request is this one: {q}",
    "Can somebody explain {q}",
    "What I need to find out is {q}",
    "{q}, please",
    "Looking for: {q}",
)
CLOSINGS = ("Thank you very much.", "Kind regards", "Any hint helps.", "I am grateful for an answer.")
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
    near = KEYS.get(letter.lower(), letter)
    return before + near[int(rng.integers(len(near)))] + after


def _wordy(query: str, rng: np.random.Generator) -> str:
    stories = [STORIES[place] for place in rng.choice(len(STORIES), int(rng.integers(1, 4)), replace=False)]
    bare = query.rstrip("?!. ")
    request = REQUESTS[int(rng.integers(len(REQUESTS)))].format(q=bare[:1].lower() + bare[1:])
    closing = [CLOSINGS[int(rng.integers(len(CLOSINGS)))]] if rng.random() < 0.3 else []
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
    shares = np.asarray([share for share, _ in FORMS.values()])
    name = list(FORMS)[int(rng.choice(len(FORMS), p=shares / shares.sum()))]
    return FORMS[name][1](query, rng)
