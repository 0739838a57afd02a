"""Requests for all systems: a query, and documents that no system has seen before."""

import json
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.data.collection import Collection

QUERY_WORDS = 6
MADE_UP = 50_000
MADE_UP_SHARE = 0.06
MARKS = ("", "", "", "", "", "", "", "", "", ",", ".", ".")
Draw = Callable[[int, int], list[str]]
"""Draws a number of texts of a number of words; never the same text twice."""


class Request(NamedTuple):
    """A query and its candidates.

    Attributes:
        query: six words that are rare in the documents.
        documents: texts of the documents.
        relevant: index of the one document that has the query's words.
    """

    query: str
    documents: list[str]
    relevant: int


class Source:
    """Makes requests. No document comes twice.

    Args:
        draw: draws the texts.
        rare: words for queries.
        seed: seed of the queries.
    """

    def __init__(self, draw: Draw, rare: list[str], seed: int = 0) -> None:
        self._draw, self._rare = draw, rare
        self._rng = np.random.default_rng(seed)

    def request(self, documents: int, words: int) -> Request:
        """A query, and documents of `words` words. Three quarters into one of them, a sentence has the query's words."""
        query = " ".join(self._rng.choice(self._rare, QUERY_WORDS, replace=False))
        texts = self._draw(documents, words)
        relevant = int(self._rng.integers(documents))
        place = texts[relevant].find(" ", len(texts[relevant]) * 3 // 4)
        head, tail = texts[relevant][: max(place, 0)], texts[relevant][max(place, 0) :]
        texts[relevant] = f"{head}. {query}. {query}.{tail}"
        return Request(query, texts, relevant)


def invented(tokenizer: Path, seed: int = 0) -> Source:
    """Random words by Zipf's law, in sentences.

    Most words are whole words of the vocabulary, which is sorted by frequency. The rest are made up, as names would be.
    """
    rng = np.random.default_rng(seed)
    known = whole_words(tokenizer)
    letters = "etaoinshrdlucmfwypvbgk"
    spelled = rng.integers(len(letters), size=(MADE_UP, 10)).tolist()
    sizes = rng.integers(4, 11, MADE_UP).tolist()
    made_up = ["".join(letters[n] for n in row[:size]) for row, size in zip(spelled, sizes, strict=True)]
    words = np.array(known + made_up, dtype=object)
    zipf = 1 / np.arange(2, len(known) + 2)
    shares = np.concatenate([zipf * (1 - MADE_UP_SHARE) / zipf.sum(), np.full(MADE_UP, MADE_UP_SHARE / MADE_UP)])

    def draw(documents: int, n_words: int) -> list[str]:
        drawn = words[rng.choice(len(words), (documents, n_words), p=shares)]
        marked = drawn + np.array(MARKS, dtype=object)[rng.integers(len(MARKS), size=drawn.shape)]
        return [" ".join(row) for row in marked]

    return Source(draw, known[len(known) // 4 : len(known) // 2], seed)


def whole_words(tokenizer: Path) -> list[str]:
    """The whole words of a WordPiece vocabulary with at least two letters, most frequent first."""
    vocabulary: dict[str, int] = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    return [word for word in sorted(vocabulary, key=vocabulary.__getitem__) if len(word) > 1 and word.isascii() and word.isalpha()]


def collected(directory: Path, seed: int = 0) -> Source:
    """Consecutive words of a collection's documents. After the last word it starts again, and the texts begin at other words."""
    texts = [document.text.split() for document in Collection(directory).documents.values()]
    words = list(chain.from_iterable(texts))
    taken = count(seed)
    frequencies: dict[str, int] = {}
    for word in words:
        frequencies[word] = frequencies.get(word, 0) + 1
    rare = sorted(word for word, number in frequencies.items() if 2 <= number <= 20 and word.isalpha() and len(word) > 4)

    def one(n_words: int) -> str:
        start = next(taken) * (n_words + 1) % len(words)
        head = words[start : start + n_words]
        return " ".join(head + words[: n_words - len(head)])

    return Source(lambda documents, n_words: [one(n_words) for _ in range(documents)], rare, seed)
