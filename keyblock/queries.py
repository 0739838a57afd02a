"""Queries that are longer than the model reads: which sentences of an e-mail, a case or a log the model gets.

A sentence asks if it ends in a question mark or holds words such as "I would like to know". If some ask, only they are candidates:
the text around them misleads a model that was trained on questions. If none asks, the last sentence is taken first, since a story
comes before its request. Sentences are taken one by one: each time the one whose terms, without those already taken, weigh most
for its length. A term weighs its inverse document frequency times the logarithm of one more than its count in the query.
"""

import heapq
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keyblock.prepared import PreparedQuery, idf_of
from keyblock.text.analyzer import Analyzer, DocumentFrequencies
from keyblock.text.reading import Reading
from keyblock.text.sentences import CLOSING, sentence_ends

QUERY_TERMS = 256  # distinct terms of a query that select blocks: limits the work that a pasted page makes in each block
LONGEST = 32  # the most tokens of a sentence that is taken or left as a whole: a longer one is split
CLAUSE = 5  # tokens of a sentence that may hold a request: "Thank you." has fewer
NAMED = 8  # the most sentences that a note lists by number
QUESTION = ("?", "\uff1f", "\u061f", "\u037e")
PAUSES = (",", ";", ":", "\uff0c", "\u3001", "\u060c")  # a long sentence is split behind one of these, if there is one late enough
_WH = r"(?:whether|how|what|which|when|where|who|why)"
_LEARN = r"(?:know|learn|find\ out|understand|hear)"
REQUEST = re.compile(  # words that ask without a question mark
    rf"""\b(?:(?:like|want|need|wish|trying|curious)\ to\ {_LEARN}
    | (?:tell|show|advise)\ (?:me|us) | (?:let\ (?:me|us)\ know|wonder|wondering|explain|describe|find\ out)\ (?:if\ (?!you)|{_WH})
    | please\ (?:explain|describe|list|summari[sz]e|name) | (?:my|our|the)\ (?:question|request)\ is | looking\ for
    | (?:m\u00f6chte|will|w\u00fcrde)\b[\w\ ]{{0,20}}\bwissen | (?:sagen|erkl\u00e4ren)\ sie\ (?:mir|uns) | meine\ frage\ ist
    | (?:voudrais|aimerais|veux)\ savoir | dites[-\ ](?:moi|nous) | ma\ question\ est
    | (?:quisiera|quiero|gustar\u00eda)\ saber | d\u00edgame | (?:vorrei|voglio)\ sapere | mi\ dica
    | (?:gostaria\ de|quero)\ saber | diga-me | graag\ (?:willen\ )?weten)\b""",
    re.IGNORECASE | re.VERBOSE,
)


class LongQuery(BaseModel):
    """Which part of a query with more than `query_tokens` tokens the model reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tokens: int = Field(48, ge=1, le=256, description="the most tokens of such a query that are kept, in whole sentences")
    questions: bool = Field(
        True, description="if sentences of the query ask, keep only these; if none does, keep the last one first"
    )
    first: float = Field(1.0, ge=0, description="factor of the first sentence's weight")


class Sentence(NamedTuple):
    """A sentence of a query, or a piece of a long one.

    Attributes:
        start, end: its token range.
        terms: keys of its terms, one for each occurrence.
        asks: whether it ends in a question mark or holds a request.
    """

    start: int
    end: int
    terms: Sequence[int]
    asks: bool


def is_question(sentence: str) -> bool:
    """Whether a sentence ends in a question mark, inside quotation marks or brackets or not."""
    return sentence.rstrip().rstrip(CLOSING).endswith(QUESTION)


def query_sentences(reading: Reading, analyzer: Analyzer) -> list[Sentence]:
    """The sentences of a query that has at least one token; together they hold all of its tokens."""
    heads, tails, n = reading.heads, reading.tails, len(reading.ids)
    words = np.append(np.flatnonzero(heads[1:] > tails[:-1]) + 1, n)  # where words begin after a space
    ends = np.unique([0, *np.searchsorted(heads, sentence_ends(reading.text)).tolist(), n]).tolist()
    bounds = [0]
    for end in ends[1:]:
        while end - bounds[-1] > LONGEST:
            bounds.append(_split(bounds[-1], end, words, heads, reading.text))
        bounds.append(end)
    found, requested = list[Sentence](), False
    for start, end in pairwise(bounds):
        text = reading.text[heads[start] : tails[end - 1]]
        requested = REQUEST.search(text) is not None or (requested and start not in ends)  # what is asked for comes behind it
        found.append(Sentence(start, end, analyzer.keys(text), requested or is_question(text)))
    return found


def _split(start: int, end: int, words: NDArray[np.intp], heads: NDArray[np.int32], text: str) -> int:
    """Where to split a sentence of more than LONGEST tokens: behind the last pause of the second half, else between two words."""
    fitting = words[(words > start) & (words <= start + LONGEST) & (words < end)]
    pauses = [word for word in fitting.tolist() if word > start + LONGEST // 2 and text[: heads[word]].rstrip().endswith(PAUSES)]
    return int(pauses[-1]) if pauses else int(fitting[-1]) if len(fitting) else start + LONGEST


def term_weights(terms: Sequence[int], frequencies: DocumentFrequencies) -> dict[int, float]:
    """The weight of each distinct term of the query, in the order of first appearance."""
    counts = Counter(terms)
    idf = idf_of(np.fromiter(counts, np.int64, len(counts)), frequencies)
    weights = idf * np.log1p(np.fromiter(counts.values(), np.float64, len(counts)))
    return dict(zip(counts, weights.tolist(), strict=True))


def key_sentences(sentences: Sequence[Sentence], weights: Mapping[int, float], config: LongQuery) -> list[tuple[int, int]]:
    """Numbers of the chosen sentences, in the order of choice, and how many tokens of each are kept.

    The first is cut if it does not fit; all others are kept whole. Gains only fall as terms are taken, so a sentence's gain is
    computed again only when the sentence would be next (lazy greedy, Minoux 1978).
    """

    def gain(number: int) -> float:
        start, end, terms, _ = sentences[number]
        factor = 1.0 if number else config.first
        return factor * sum(weights.get(term, 0.0) for term in set(terms) - taken) / (end - start)

    taken, found, room = set[int](), list[tuple[int, int]](), config.tokens
    asking = [number for number, one in enumerate(sentences) if one.asks and gain(number) > 0]
    last = _request(sentences, gain) if config.questions and not asking else None
    queue = [(-gain(number), number) for number in (config.questions and asking) or range(len(sentences)) if number != last]
    heapq.heapify(queue)
    while (queue or last is not None) and room > 0:
        if last is not None:
            known, number, last = -np.inf, last, None
        else:
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


def _request(sentences: Sequence[Sentence], gain: Callable[[int], float]) -> int | None:
    """The last sentence that says something: it has CLAUSE tokens and a term. None if there is no such sentence."""
    telling = (n for n in reversed(range(len(sentences))) if sentences[n].end - sentences[n].start >= CLAUSE and gain(n) > 0)
    return next(telling, None)


def long_query(reading: Reading, analyzer: Analyzer, frequencies: DocumentFrequencies, config: LongQuery) -> PreparedQuery:
    """Prepare a query of which the model reads a part. Up to QUERY_TERMS terms select blocks: first those read, then the heaviest.

    Args:
        reading: the reading of the query, which has more tokens than the model reads.
        analyzer: finds its terms.
        frequencies: document frequencies of terms.
        config: how many tokens to keep, and which sentences weigh more.
    """
    sentences = query_sentences(reading, analyzer)
    weights = term_weights(analyzer.keys(reading.text), frequencies)
    found = sorted(key_sentences(sentences, weights, config))
    ids = np.concatenate([reading.ids[sentences[i].start : sentences[i].start + length] for i, length in found])
    read = {term for number, _ in found for term in sentences[number].terms}  # comes first: a log's rare ids must not displace them
    heaviest = set(sorted(weights, key=lambda term: (term in read, weights[term]), reverse=True)[:QUERY_TERMS])
    terms = np.asarray([term for term in weights if term in heaviest], dtype=np.int64)
    numbers = ", ".join(str(i + 1) for i, _ in found[:NAMED]) + (" ..." if len(found) > NAMED else "")
    reads = f"{len(ids)} of its {len(reading.ids)} tokens (of its {len(sentences)} sentences these: {numbers})"
    return PreparedQuery(ids, terms, truncated=len(ids) < len(reading.ids), reads=reads)
