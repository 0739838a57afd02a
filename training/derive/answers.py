"""Changes answers: kept apart, put into other words, and changed so that they answer another question."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import Stemmer
from numpy.typing import NDArray

from keyblock.text.analyzer import STOP_WORDS
from keyblock.text.sentences import sentences
from training.derive.queries import ASKING
from training.derive.wordnet import WordNet, rewrite

WHOLE = 2  # a passage of at most so many sentences is an answer as it is
MARGIN = 0.05  # how much nearer to the query the best sentence must be than the next; else the passage is the answer as a whole
LONGEST = 60  # words of a sentence that stands for an answer alone
NUMBERS = (
    "2 3 4 5 6 7 8 9 10 12 14 15 18 20 21 24 25 28 30 36 40 45 48 50 60 72 75 80 90 100 120 150 180 200 250 365 500 1000".split()
)
AUXILIARIES = "is are was were has have had can could will would should may must does do did".split()
OTHERS = ("all others", "any other", "the rest", "everything else", "every other case", "those not listed")
POINTING = ("it", "this", "that", "this one", "the same")
_WORD = re.compile(r"\w[\w'\u2019-]*")
_stem = Stemmer.Stemmer("english").stemWord


class Near(Protocol):
    """Says how near texts are to a query."""

    def __call__(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """The similarity of each text, shape (n_texts,)."""


class Replacement(NamedTuple):
    """Words that stand in an exchanged answer for words of the query.

    Attributes:
        names: words with a capital letter.
        words: other content words.
    """

    names: Sequence[str]
    words: Sequence[str]


def split(text: str) -> list[str]:
    """The sentences of a text, without the spaces around them."""
    return [text[start:end] for start, end in sentences(text)]


def answering_sentence(query: str, passage: str, near: Near) -> str:
    """The sentence of a gold passage that answers; the whole passage if it is short or no sentence stands out."""
    parts = split(passage)
    if len(parts) <= WHOLE:
        return passage
    order = np.argsort(-(scores := near(query, parts)), kind="stable")
    best = parts[order[0]]
    if scores[order[0]] - scores[order[1]] < MARGIN or best.endswith("?") or not 4 <= len(best.split()) <= LONGEST:
        return passage
    return best


def content_words(text: str) -> list[str]:
    """The words of a text that are neither stop words nor words that ask, as they are written."""
    return [w for w in _WORD.findall(text) if w.lower() not in STOP_WORDS and w.lower() not in ASKING and len(w) > 1]


def shared_words(query: str, text: str) -> list[str]:
    """The text's distinct words that have the stem of a content word of the query."""
    stems = {_stem(word.lower()) for word in content_words(query)}
    return list(dict.fromkeys(word for word in content_words(text) if _stem(word.lower()) in stems))


def in_other_words(query: str, text: str, wordnet: WordNet | None, rng: np.random.Generator) -> str:
    """The text with most of the words that it shares with the query left out, pointed at ("it"), or put into WordNet's words.

    Names and numbers stay: they have no synonym, and without them the text answers no longer.
    """
    for word in shared_words(query, text):
        if not word.islower() or rng.random() < 0.2:
            continue
        other = rewrite(word, wordnet, rng) if wordnet and rng.random() < 0.8 else word
        if other == word:
            other = POINTING[int(rng.integers(len(POINTING)))] if rng.random() < 0.5 else ""
        text = other.join(re.split(rf"\b{re.escape(word)}\b", text))
    return re.sub(r"[ \t]+([.,;:)]|(?=\s))", r"\1", text).strip()


def exchanged(query: str, text: str, others: Replacement, rng: np.random.Generator) -> str | None:
    """The text about something else: a name, a number or another word of the query has another one in its place.

    None if the text has no word of the query.
    """
    found = shared_words(query, text)
    if not found:
        return None
    telling = [word for word in found if word[0].isupper() or word[0].isdigit()] or found
    word = telling[int(rng.integers(len(telling)))]
    if rng.random() < 0.15:
        other = OTHERS[int(rng.integers(len(OTHERS)))]
    elif word[0].isdigit():
        other = NUMBERS[int(rng.integers(len(NUMBERS)))]
    else:
        pool = others.names if word[0].isupper() else others.words
        other = pool[int(rng.integers(len(pool)))]
    if other.lower() == word.lower():
        return None
    return other.join(re.split(rf"\b{re.escape(word)}\b", text))


def negated(text: str) -> str | None:
    """The text with its first auxiliary verb denied, or no longer denied; None for a text without one."""
    for denial in (" not ", " never "):
        if denial in text:
            return text.replace(denial, " ", 1)
    match = re.search(rf" ({'|'.join(AUXILIARIES)}) ", text)
    return f"{text[: match.end(1)]} not{text[match.end(1) :]}" if match else None


def shared_count(query: str) -> Callable[[str], int]:
    """Counts how many content words of the query a text has."""
    stems = {_stem(word.lower()) for word in content_words(query)}
    return lambda text: len(stems & {_stem(word.lower()) for word in content_words(text)})


def near_by_words(query: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """How near texts are to a query by the share of its content words that they hold: see Near."""
    count, most = shared_count(query), max(1, len(content_words(query)))
    return np.asarray([count(text) / most for text in texts], np.float32)
