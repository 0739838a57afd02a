"""Answering spans: sentences inside the key blocks, or runs of them, each with the probability that it answers the query.

A model with a marker gives each token a logit, in the pass that scores the document; a sentence's mark is the mean over its
tokens. Sentences end at their own ends, wherever blocks end. To find them, the texts of the chosen blocks are tokenized again: a
prepared document has the offsets of blocks, not of tokens, and few documents need spans.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.fusion import sigmoid
from keyblock.packing import Packed, pieces
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedQuery
from keyblock.queries import is_question
from keyblock.ranking.order import Block, Candidate, Ranking, ScoredBy
from keyblock.selectors import rank_blocks
from keyblock.text.readable import is_data
from keyblock.text.sentences import sentences

THRESHOLD = 0.1  # Cohere's default: no span has a smaller probability
NEARLY = 0.6  # share of the best sentence's odds that a neighbouring sentence needs to join its span
_HEADING = re.compile(r"#{2,6}[ \t]")  # of Markdown; one # may begin a comment
LONGEST_GAP = 200  # the most characters between sentences of one span: no span holds a page of spaces


class Span(NamedTuple):
    """``text[start:end]``, in Unicode code points, and the probability that it answers, 0 to 1."""

    start: int
    end: int
    score: float


class Sentence(NamedTuple):
    """A sentence inside a key block.

    Attributes:
        start, end: offsets in the document's text, in code points.
        mark: the mean of its tokens' marks.
        tokens: how many of its tokens the model read; 0 if the block was cut before it.
    """

    start: int
    end: int
    mark: float
    tokens: int


class Marked(NamedTuple):
    """Sequences of one document with the logits of their tokens, shape (length,) each; empty for a sequence that was not scored."""

    sequences: Sequence[Packed]
    marks: Sequence[NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """The part of a document that the model read.

    Attributes:
        text: the document's text.
        sequences: as in `keyblock.ranking.order.Candidate`.
        places: shape (n_blocks, 2), where each chosen block starts and ends in the text, best first.
        lengths: shape (n_blocks,), tokens of each chosen block.
        title: tokens of the title.
    """

    text: str
    sequences: Sequence[Packed]
    places: NDArray[np.int32]
    lengths: NDArray[np.int32]
    title: int

    def blocks_of(self, number: int) -> NDArray[np.intp]:
        """The blocks of a sequence, as rows of `places`, best first; several sequences hold one block each, in document order."""
        if len(self.sequences) == 1:
            return np.arange(len(self.places), dtype=np.intp)
        return np.argsort(self.places[:, 0], kind="stable")[number : number + 1]


def marked_sentences(pipeline: Pipeline, read: Read, marks: Sequence[NDArray[np.float32]]) -> list[Sentence]:
    """The sentences of a document's chosen blocks, in document order.

    Args:
        pipeline: the pipeline that packed the sequences.
        read: the document.
        marks: token logits of each sequence, shape (length,); empty for a sequence that was not scored.
    """
    texts = [read.text[start:end] for start, end in read.places.tolist()]
    readings = pipeline.reader.read(texts)
    found: list[Sentence] = []
    for number, (packed, of_tokens) in enumerate(zip(read.sequences, marks, strict=True)):
        blocks = read.blocks_of(number)
        after = len(pipeline.tokenizer.template.after)
        for block, at, count in pieces(packed, blocks, read.lengths, read.places[:, 0], read.title, after):
            places = _token_places(readings[block].places(), int(read.lengths[block]), len(texts[block]))
            inside = of_tokens[at : at + count] if len(of_tokens) else of_tokens
            found += _sentences(texts[block], int(read.places[block, 0]), (places[0][:count], places[1][:count]), inside)
    return sorted(found)


def _token_places(
    found: tuple[NDArray[np.int32], NDArray[np.int32]], due: int, n_chars: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Offsets of `due` tokens in a block's text; spread evenly if the block alone has another number of tokens."""
    if len(found[0]) == due:
        return found
    edges = np.linspace(0, n_chars, due + 1).astype(np.int32)
    return edges[:-1], edges[1:]


def _sentences(
    text: str, first: int, places: tuple[NDArray[np.int32], NDArray[np.int32]], marks: NDArray[np.float32]
) -> Iterator[Sentence]:
    """The sentences of a block whose text starts at `first`; `places` and `marks` belong to the tokens that the model read."""
    starts, ends = places
    for start, end in sentences(text):
        inside = (starts < end) & (ends > start)
        n_tokens = int(inside.sum())
        mark = float(marks[inside].mean()) if n_tokens and len(marks) else 0.0
        yield Sentence(first + start, first + end, mark, n_tokens if len(marks) else 0)


def by_terms(pipeline: Pipeline, query: PreparedQuery, text: str, blocks: Sequence[Block], worth: Sequence[float]) -> list[Span]:
    """The sentences of the chosen blocks, scored without a model that marks tokens: the block's score by the share of query terms.

    The sentence with the most query terms in its block gets the block's score, the others their share of it; if no sentence has any
    term, each gets the block's score.

    Args:
        pipeline: its analyzer finds the terms.
        query: its terms are counted.
        text: the document's text.
        blocks: the chosen blocks.
        worth: for each block the probability that it answers.
    """
    query_terms = set(query.terms.tolist())
    found: list[Span] = []
    for (start, end, _), score in zip(blocks, worth, strict=True):
        block = text[start:end]
        inside = list(sentences(block))
        counts = [len(query_terms & set(pipeline.analyzer.keys(block[a:b]))) for a, b in inside]
        most = max(counts, default=0)
        shares = [count / most if most else 1.0 for count in counts]
        found += [Span(start + a, start + b, score * share) for (a, b), share in zip(inside, shares, strict=True)]
    return sorted(found)


def scored_sentences(
    pipeline: Pipeline,
    query: PreparedQuery,
    candidate: Candidate,
    ranking: Ranking,
    number: int,
    text: str,
    marks: Sequence[NDArray[np.float32]] | None = None,
    further: Marked | None = None,
) -> list[Span]:
    """The sentences of a document's key blocks that may answer, with the probability that they do, in document order.

    They are those of the text as a person reads it, without questions, headings and data.

    The probability comes from the marks of a sentence's tokens, if the model gives marks and the pipeline has fitted span scores.
    Otherwise it comes from the sentence's block by its share of query terms (see `by_terms`), and the block's from its own score if
    the model read each block separately, else from the document's score.

    Args:
        pipeline: the pipeline that selected the blocks.
        query: the query.
        candidate: the document.
        ranking: the ranking of all documents.
        number: the document's number in the ranking.
        text: the document's text.
        marks: for each sequence of the document the logits of its tokens.
        further: the same of a second look.

    Returns:
        An empty list if the model has not scored the document.
    """
    if ranking.scored_by[number] is not ScoredBy.MODEL:
        return []
    (text,) = pipeline.reader.readable([text])
    logit, config = ranking.logits[number], pipeline.config
    if marks is not None and config.spans is not None:
        places = np.asarray([block[:2] for block in candidate.blocks], np.int32).reshape(-1, 2)
        read = Read(text, candidate.sequences, places, np.asarray(candidate.lengths, np.int32), candidate.title)
        found = marked_sentences(pipeline, read, marks)
        if further is not None and candidate.further is not None:
            lengths = np.asarray([len(ids) for ids in candidate.further.ids], np.int32)
            more = Read(text, further.sequences, candidate.further.places, lengths, candidate.title)
            found = sorted(found + marked_sentences(pipeline, more, further.marks))
        found = [one for one in found if one.tokens and _may_answer(text[one.start : one.end])]
        scores = config.spans.probabilities(np.asarray([one.mark for one in found]), np.full(len(found), logit))
        return [Span(one.start, one.end, score) for one, score in zip(found, scores.tolist(), strict=True)]
    blocks = ranking.blocks[number][: len(candidate.blocks)]  # without those of a second look, whose scores are the model's
    scores = np.asarray([block.score for block in blocks])
    if pipeline.aggregator.joint:
        worth = block_worth(scores, float(sigmoid(logit)))
    else:
        evidence = np.repeat(candidate.evidence[None], len(blocks), axis=0)
        worth = sigmoid(config.activation.scale * config.fusion.fuse(scores, evidence)).tolist()
    found_by_terms = by_terms(pipeline, query, text, blocks, worth)
    return [one for one in found_by_terms if _may_answer(text[one.start : one.end])]


def _may_answer(sentence: str) -> bool:
    return not is_question(sentence) and not is_data(sentence) and not _HEADING.match(sentence)


def spans(text: str, scored: Sequence[Span], threshold: float = THRESHOLD) -> list[Span]:
    """The spans of a document, best first, none of which overlap.

    A span is a sentence with the adjacent sentences that are nearly as likely (`NEARLY`); it has the score of its best sentence.

    Args:
        text: the document's text.
        scored: sentences with their probabilities, in document order.
        threshold: the probability that a sentence must reach.
    """
    runs: list[list[Span]] = []
    for one in scored:
        if one.score < threshold:
            continue
        last = runs[-1][-1] if runs else None
        if last is not None and one.start < last.end:  # overlapping blocks hold a sentence twice
            runs[-1][-1] = Span(last.start, max(last.end, one.end), max(last.score, one.score))
        elif last is not None and is_gap(text[last.end : one.start]):
            runs[-1].append(one)
        else:
            runs.append([one])
    found = [span for run in runs for span in _parted(run)]
    return sorted(found, key=lambda span: (-span.score, span.start))


def _parted(run: list[Span]) -> Iterator[Span]:
    """The spans of a run of adjacent sentences: the best with its nearly as likely neighbours, then the same on either side."""
    waiting = [run]
    while waiting:
        if not (run := waiting.pop()):
            continue
        best = max(range(len(run)), key=lambda place: run[place].score)
        least = nearly_as_likely(run[best].score)
        first, last = best, best
        while first and run[first - 1].score >= least:
            first -= 1
        while last + 1 < len(run) and run[last + 1].score >= least:
            last += 1
        yield Span(run[first].start, run[last].end, run[best].score)
        waiting += [run[:first], run[last + 1 :]]


def nearly_as_likely(probability: float) -> float:
    """The least probability that counts as nearly as likely: its odds are `NEARLY` times those of `probability`."""
    return NEARLY * probability / (1 - probability + NEARLY * probability) if probability else 0.0


def is_gap(between: str) -> bool:
    """Whether texts on both sides of `between` are adjacent: it holds only a few spaces and invisible characters, as U+200B."""
    return len(between) <= LONGEST_GAP and not any(map(str.isprintable, between.strip().replace(" ", "")))


def block_worth(scores: NDArray[np.float64], document: float) -> list[float]:
    """The probability of each block of a document that the model read as one text: the document's for the best block, else less.

    Args:
        scores: shape (n_blocks,), the selector's scores, best first.
        document: the probability that the document answers.
    """
    if not len(scores):
        return []
    best = float(scores[rank_blocks(scores)[0]])
    return [document * float(np.clip(score / best, 0.0, 1.0)) if best > 0 else document for score in scores.tolist()]
