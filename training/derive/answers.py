"""Changes answers: kept apart, put into other words, and changed so that they answer another question."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import Stemmer
from numpy.typing import NDArray

from keyblock.text.analyzer import STOP_WORDS
from keyblock.text.sentences import sentences
from training.derive.drawing import one_of
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


Near = Callable[[str, Sequence[str]], NDArray[np.float32]]
"""Says how near texts are to a query: the similarity of each, shape (n_texts,)."""


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


def _stems(text: str) -> set[str]:
    return {_stem(word.lower()) for word in content_words(text)}


def shared_words(query: str, text: str) -> list[str]:
    """The text's distinct words that have the stem of a content word of the query."""
    stems = _stems(query)
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
            other = one_of(POINTING, rng) if rng.random() < 0.5 else ""
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
    word = one_of(telling, rng)
    of_its_kind = NUMBERS if word[0].isdigit() else others.names if word[0].isupper() else others.words
    other = one_of(OTHERS if rng.random() < 0.15 else of_its_kind, rng)
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
    stems = _stems(query)
    return lambda text: len(stems & _stems(text))


def near_by_words(query: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """The share of the query's content words that each text holds: see Near."""
    count, most = shared_count(query), max(1, len(content_words(query)))
    return np.asarray([count(text) / most for text in texts], np.float32)


def near_by_vectors(name: str) -> Near:
    """The cosine of each text's vector with the query's, by the sentence encoder of this name: see Near."""
    import torch  # takes seconds: not where shared words do

    from training.model.devices import in_bf16
    from training.model.sentence_encoder import SentenceEncoder

    encoder = SentenceEncoder(name)
    bf16 = in_bf16("auto", encoder.device)

    def near(query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        with torch.autocast(encoder.device.type, torch.bfloat16, enabled=bf16):
            vectors = encoder.encode(encoder.rows([query, *texts]))
        scores: NDArray[np.float32] = vectors[1:] @ vectors[0]
        return scores

    return near
