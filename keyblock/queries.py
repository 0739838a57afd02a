"""Queries that are longer than the model reads: which sentences of an e-mail, a case or a log the model gets.

If the query has questions, only they are candidates: the text around them misleads a model that was trained on questions.
Sentences are taken one by one: each time the sentence whose terms, not counting those already taken, weigh most for its length.
A term weighs its inverse document frequency times the logarithm of one more than its count in the query.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keyblock.prepared import PreparedQuery
from keyblock.text.analyzer import Analyzer
from keyblock.text.reading import Reading
from keyblock.text.sentences import CLOSING, sentence_ends

QUERY_TERMS = 256  # distinct terms of a query that select blocks: limits the work that a pasted page makes in each block
LONGEST = 32  # the most tokens of a sentence that is taken or left as a whole: a longer one is split
NAMED = 8  # the most sentences that a note lists by number
QUESTION = ("?", "\uff1f", "\u061f", "\u037e")
Weigh = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""The inverse document frequency of each term key, shape (n_terms,)."""


class LongQuery(BaseModel):
    """Which part of a query with more than `query_tokens` tokens the model reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tokens: int = Field(48, ge=1, le=256, description="the most tokens of such a query that are kept, in whole sentences")
    questions: bool = Field(True, description="if the query has questions, keep only sentences that end in a question mark")
    first: float = Field(1.0, ge=0, description="factor of the first sentence's weight")


class Sentence(NamedTuple):
    """A sentence of a query, or a piece of a long one.

    Attributes:
        start, end: its token range.
        terms: keys of its terms, one for each occurrence.
        asks: whether it ends in a question mark.
    """

    start: int
    end: int
    terms: Sequence[int]
    asks: bool


def query_sentences(reading: Reading, analyzer: Analyzer) -> list[Sentence]:
    """The sentences of a query that has at least one token; together they hold all of its tokens."""
    (heads, tails), n = reading.places(), len(reading.ids)
    words = np.append(np.flatnonzero(heads[1:] > tails[:-1]) + 1, n)  # where words begin after a space
    ends = np.unique([0, *np.searchsorted(heads, sentence_ends(reading.text)).tolist(), n]).tolist()
    bounds = [0]
    for end in ends[1:]:
        while end - bounds[-1] > LONGEST:
            last = int(words[np.searchsorted(words, bounds[-1] + LONGEST, side="right") - 1])
            bounds.append(last if bounds[-1] < last < end else bounds[-1] + LONGEST)
        bounds.append(end)
    found = []
    for start, end in pairwise(bounds):
        text = reading.text[heads[start] : tails[end - 1]]
        found.append(Sentence(start, end, analyzer.keys(text), text.rstrip(CLOSING).endswith(QUESTION)))
    return found


def term_weights(terms: Sequence[int], weigh: Weigh) -> dict[int, float]:
    """The weight of each distinct term of the query, in the order of first appearance."""
    counts = Counter(terms)
    idf = weigh(np.fromiter(counts, np.int64, len(counts)))
    weights = idf * np.log1p(np.fromiter(counts.values(), np.float64, len(counts)))
    return dict(zip(counts, weights.tolist(), strict=True))


def key_sentences(sentences: Sequence[Sentence], weights: Mapping[int, float], config: LongQuery) -> list[tuple[int, int]]:
    """Numbers of the chosen sentences, best first, and how many tokens of each are kept.

    The first is cut if it does not fit; all others are kept whole. Gains only fall as terms are taken, so a sentence's gain is
    computed again only when the sentence would be next (lazy greedy, Minoux 1978).
    """

    def gain(number: int) -> float:
        start, end, terms, _ = sentences[number]
        factor = 1.0 if number else config.first
        return factor * sum(weights.get(term, 0.0) for term in set(terms) - taken) / (end - start)

    taken, found, room = set[int](), list[tuple[int, int]](), config.tokens
    asking = [number for number, one in enumerate(sentences) if one.asks and gain(number) > 0]
    queue = [(-gain(number), number) for number in (config.questions and asking) or range(len(sentences))]
    heapq.heapify(queue)
    while queue and room > 0:
        known, number = heapq.heappop(queue)
        if -gain(number) > known:
            heapq.heappush(queue, (-gain(number), number))
            continue
        length = sentences[number].end - sentences[number].start
        if not found or (length <= room and known < 0):
            found.append((number, min(length, room)))
            room -= min(length, room)
            taken.update(sentences[number].terms)
    return found


def long_query(reading: Reading, analyzer: Analyzer, weigh: Weigh, config: LongQuery) -> PreparedQuery:
    """Prepare a query of which the model reads a part. Up to QUERY_TERMS terms select blocks: first those read, then the heaviest.

    Args:
        reading: the reading of the query, which has more tokens than the model reads.
        analyzer: finds its terms.
        weigh: gives the terms' inverse document frequencies.
        config: how many tokens to keep, and which sentences weigh more.
    """
    sentences = query_sentences(reading, analyzer)
    weights = term_weights(analyzer.keys(reading.text), weigh)
    found = sorted(key_sentences(sentences, weights, config))
    ids = np.concatenate([reading.ids[sentences[i].start : sentences[i].start + length] for i, length in found])
    read = {term for number, _ in found for term in sentences[number].terms}  # comes first: a log's rare ids must not displace them
    heaviest = set(sorted(weights, key=lambda term: (term in read, weights[term]), reverse=True)[:QUERY_TERMS])
    terms = np.asarray([term for term in weights if term in heaviest], dtype=np.int64)
    numbers = ", ".join(str(i + 1) for i, _ in found[:NAMED]) + (" ..." if len(found) > NAMED else "")
    reads = f"{len(ids)} of its {len(reading.ids)} tokens (of its {len(sentences)} sentences these: {numbers})"
    return PreparedQuery(ids, terms, truncated=len(ids) < len(reading.ids), reads=reads)
