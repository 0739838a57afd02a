"""Splitting a document into blocks of at most 63 tokens at the cheapest places (KeyB section 3.1, after CogLTX).

Cut candidates are the ends of sentences and clauses. The split minimises ``sum(cost of each cut) + 4 per block``; a cut after
``. ? !`` costs 1, after ``,`` 2, a forced cut 8 (a stretch of more than 63 tokens without punctuation is cut every 63), and the
document's end 0. On a tie the nearest preceding cut wins.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from keyblock.registry import Component, Registry
from keyblock.text.reading import ENDS_CLAUSE, LEADS_ON, Reading, Rule
from keyblock.text.sentences import sentence_ends
from keyblock.text.structure import Cut, clauses, cuts
from keyblock.text.tokenizer import Tokenizer

BLOCK_COST, FORCED_COST = 4, 8
SENTENCE_COST, CLAUSE_COST = 1, 2
LEADING_COST = 4  # after a question or a colon: a cut elsewhere costs less, another block (4) and a cut more
CUT_COSTS = {".": SENTENCE_COST, "?": SENTENCE_COST, "!": SENTENCE_COST, ",": CLAUSE_COST}
CLAUSE_MARKS = (",", ";", ":", "–", "—", "，", "、", "；", "：")
LEADING_MARKS = ("?", "？", "؟", ":", "：")
CutCosts = Callable[[Reading], NDArray[np.int64]]
"""The cost of a cut after each token of a text, shape (n_tokens,); 0 where no cut is offered."""


def cut_costs(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The cost of a cut after each token, shape (vocabulary,); 0 where no cut is offered."""
    costs = np.zeros(tokenizer.vocabulary_size, dtype=np.int64)
    for surface, cost in CUT_COSTS.items():
        costs[tokenizer.token_ids(surface)] = cost
    return costs


def token_roles(tokenizer: Tokenizer) -> NDArray[np.uint8]:
    """What each token does at its place, shape (vocabulary,), as a sum.

    ENDS_CLAUSE where a space follows; LEADS_ON at the end of a sentence: the next one answers a question, and belongs to a colon.
    Lines without a mark do not count as headings: that lost gold passages on dev of three domains.
    """
    roles = np.zeros(tokenizer.vocabulary_size, np.uint8)
    for role, marks in ((ENDS_CLAUSE, CLAUSE_MARKS), (LEADS_ON, LEADING_MARKS)):
        roles[[token for mark in marks for token in tokenizer.token_ids(mark)]] += role
    return roles


def cut_candidates(costs: NDArray[np.int64], longest: int) -> tuple[list[int], list[int]]:
    """Places where the text may be cut, as token counts from its start, and what a cut there costs.

    Args:
        costs: shape (n_tokens,), the cost of a cut after each token, 0 for none.
        longest: the most tokens between two neighbouring places; longer stretches get forced cuts.

    Returns:
        Ascending places from 0 to n_tokens, and their costs.
    """
    n_tokens = len(costs)
    offered = np.flatnonzero(costs)
    if np.diff(offered, prepend=-1, append=n_tokens - 1).max() <= longest:  # no cut is forced
        last = [] if costs[-1:].any() or not n_tokens else [n_tokens]
        return [0, *(offered + 1).tolist(), *last], [0, *costs[offered].tolist(), *(0 for _ in last)]
    places, prices = [0], [0]
    for place, price in zip((offered + 1).tolist(), costs[offered].tolist(), strict=True):
        _force(places, prices, place, longest)
        places.append(place)
        prices.append(price)
    _force(places, prices, n_tokens, longest)
    if places[-1] < n_tokens:
        places.append(n_tokens)
        prices.append(0)
    return places, prices


def _force(places: list[int], prices: list[int], until: int, longest: int) -> None:
    while until - places[-1] > longest:
        places.append(places[-1] + longest)
        prices.append(FORCED_COST)


def split(costs: NDArray[np.int64], longest: int = 63) -> NDArray[np.int32]:
    """The cheapest split into blocks of at most `longest` tokens.

    Args:
        costs: shape (n_tokens,), the cost of a cut after each token, 0 for none.
        longest: tokens a block may have.

    Returns:
        Bounds of shape (n_blocks + 1,): block i is tokens ``bounds[i]:bounds[i + 1]``; ``[0]`` for an empty document.
    """
    places, prices = cut_candidates(costs, longest)
    best, before = [0] * len(places), [0] * len(places)
    window = deque([0])  # places within reach that no nearer place beats, cheapest first: keeps a page of "!" linear
    for i in range(1, len(places)):
        while places[window[0]] < places[i] - longest:
            window.popleft()
        before[i] = window[0]
        best[i] = best[window[0]] + prices[i] + BLOCK_COST
        while window and best[window[-1]] >= best[i]:
            window.pop()
        window.append(i)
    bounds, i = [], len(places) - 1
    while i > 0:
        bounds.append(places[i])
        i = before[i]
    return np.asarray([0, *reversed(bounds)], dtype=np.int32)


def sentence_costs(reading: Reading, roles: NDArray[np.uint8]) -> NDArray[np.int64]:
    """SENTENCE_COST or LEADING_COST after each sentence's last token, CLAUSE_COST after each clause's; shape (n_tokens,).

    Args:
        reading: the text's reading.
        roles: see `token_roles`.
    """
    heads, tails = reading.heads, reading.tails
    costs = np.zeros(len(reading.ids), np.int64)
    ends = np.flatnonzero(roles[reading.ids[:-1]] & ENDS_CLAUSE)
    costs[ends[tails[ends] < heads[ends + 1]]] = CLAUSE_COST
    last = np.searchsorted(heads, sentence_ends(reading.text)) - 1
    last = last[last >= 0]
    costs[last] = np.where(roles[reading.ids[last]] & LEADS_ON, LEADING_COST, SENTENCE_COST)
    return costs


def _ends_sentence(costs: NDArray[np.int64]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (costs == SENTENCE_COST) | (costs == LEADING_COST)
    return found


def structure_costs(reading: Reading, longest: int) -> NDArray[np.int64]:
    """The cost of each Cut after the last token before it, shape (n_tokens,): clauses only in stretches longer than `longest`."""
    heads = reading.heads
    costs = np.zeros(len(reading.ids), np.int64)
    places, kinds = cuts(reading.text)
    last = np.searchsorted(heads, places) - 1
    offered, within = (last >= 0) & (kinds != Cut.CLAUSE), (last >= 0) & (kinds == Cut.CLAUSE)
    costs[last[offered]] = kinds[offered]
    bounds = np.concatenate([[0], np.flatnonzero(costs) + 1, [len(costs)]])
    long = np.append(np.diff(bounds) > longest, False)
    if long.any():
        ends = np.searchsorted(heads, clauses(reading.text)) - 1
        for at, cost in ((ends[ends >= 0], Cut.CLAUSE), (last[within], Cut.SENTENCE)):
            stretch = np.searchsorted(bounds, at, side="right") - 1
            inside = long[stretch] & (at < bounds[np.minimum(stretch + 1, len(bounds) - 1)] - 1)
            costs[at[inside]] = cost
    return costs


class Segmenter(Component):
    """Cuts a tokenized document into blocks."""

    def cut_costs(self, tokenizer: Tokenizer) -> CutCosts:
        """The function that computes the costs for `ranges`: by default the `cut_costs` of a text's tokens."""
        costs = cut_costs(tokenizer)
        return lambda reading: costs[reading.ids]

    def rule(self, tokenizer: Tokenizer) -> Rule | None:
        """The rule by which a compiled reader cuts the same way; None if it cannot."""
        return None

    def ranges(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """Token ranges of the blocks, shape (n_blocks, 2), from the cut cost after each token, shape (n_tokens,).

        Together they cover every token; neighbours may overlap.
        """
        raise TypeError(f"{type(self).__name__} does not say how it cuts")


SEGMENTERS: Registry[Segmenter] = Registry("segmenter")


def between(bounds: NDArray[np.int32]) -> NDArray[np.int32]:
    """The ranges, shape (n, 2), between ascending bounds of shape (n + 1,)."""
    return np.stack([bounds[:-1], bounds[1:]], axis=1)


@SEGMENTERS.register("cogltx")
class CogLtxSegmenter(Segmenter):
    """Blocks that end at sentence ends if possible, by dynamic programming."""

    block_tokens: int = Field(63, ge=1, le=512, description="tokens a block has at most")

    def rule(self, tokenizer: Tokenizer) -> Rule | None:
        """See Segmenter."""
        return Rule("tokens", self.block_tokens, cut_costs(tokenizer).astype(np.uint8))

    def ranges(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """See `split`."""
        return between(split(costs, self.block_tokens))


@SEGMENTERS.register("whole_sentences")
class WholeSentenceSegmenter(Segmenter):
    """Blocks that begin where sentences begin, by dynamic programming; only a sentence longer than a block is cut.

    `keyblock.text.sentences` finds the ends of sentences. A long sentence is cut after commas, semicolons, colons and dashes, and
    by force if it has none. A question or a line that ends in a colon stays with the sentence behind it where both fit.
    """

    block_tokens: int = Field(63, ge=1, le=512, description="tokens a block has at most")

    def cut_costs(self, tokenizer: Tokenizer) -> CutCosts:
        """See `sentence_costs`."""
        roles = token_roles(tokenizer)
        return lambda reading: sentence_costs(reading, roles)

    def rule(self, tokenizer: Tokenizer) -> Rule | None:
        """See Segmenter."""
        return Rule("sentences", self.block_tokens, token_roles(tokenizer))

    def ranges(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """As `split`, with clause ends only in long sentences, shape (n_blocks, 2)."""
        ends = _ends_sentence(costs)
        bounds = np.concatenate([[0], np.flatnonzero(ends) + 1, [len(costs)]])
        lengths = np.diff(bounds)
        offered = ends | np.repeat(lengths > self.block_tokens, lengths)
        return between(split(np.where(offered, costs, 0), self.block_tokens))


@SEGMENTERS.register("single_sentences")
class SingleSentenceSegmenter(WholeSentenceSegmenter):
    """One block for each sentence, however short; a sentence longer than a block is cut as `whole_sentences` cuts it."""

    def rule(self, tokenizer: Tokenizer) -> None:
        """See Segmenter: no compiled reader cuts so."""

    def ranges(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """The range of each sentence, or of its parts, shape (n_blocks, 2)."""
        bounds = np.union1d([0, len(costs)], np.flatnonzero(_ends_sentence(costs)) + 1)
        long = bounds[np.flatnonzero(np.diff(bounds) > self.block_tokens)]
        parts = [start + split(costs[start : bounds[bounds > start][0]], self.block_tokens) for start in long.tolist()]
        return between(np.unique(np.concatenate([bounds, *parts])).astype(np.int32))


@SEGMENTERS.register("structure")
class StructureSegmenter(WholeSentenceSegmenter):
    """Blocks of whole sentences that end where parts of the text end, in any script and any kind of text.

    `keyblock.text.structure` finds the ends of paragraphs, items, rows, records and turns. A heading stays with the text after it.
    Only a sentence longer than a block is cut inside, after a comma or a dash of any script.
    """

    def cut_costs(self, tokenizer: Tokenizer) -> CutCosts:
        """See `structure_costs`."""
        return lambda reading: structure_costs(reading, self.block_tokens)

    def rule(self, tokenizer: Tokenizer) -> Rule | None:
        """See Segmenter."""
        return Rule("structure", self.block_tokens, np.zeros(0, np.uint8))

    def ranges(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """As `split`, shape (n_blocks, 2)."""
        return between(split(costs, self.block_tokens))


@SEGMENTERS.register("window")
class WindowSegmenter(Segmenter):
    """Passages of a fixed length that overlap, wherever sentences end (PARADE: 225 tokens every 200; KeyB section 6.1)."""

    block_tokens: int = Field(225, ge=1, le=512, description="tokens a passage has; the last may have fewer")
    stride: int = Field(200, ge=1, le=512, description="tokens from a passage's start to the next one's")

    @model_validator(mode="after")
    def _nothing_between(self) -> Self:
        if self.stride > self.block_tokens:
            raise ValueError(f"stride {self.stride} is longer than block_tokens {self.block_tokens}: tokens between would be lost")
        return self

    def ranges(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """A passage each `stride` tokens until one reaches the end, shape (n_blocks, 2)."""
        n = len(costs)
        starts = np.arange(0, max(n - self.block_tokens, 0) + self.stride if n else 0, self.stride, dtype=np.int32)
        return np.stack([starts, np.minimum(starts + self.block_tokens, n, dtype=np.int32)], axis=1)


@SEGMENTERS.register("sentences")
class SentenceSegmenter(Segmenter):
    """Segments of whole sentences, one after the other (BeST section 4); a sentence longer than a segment is cut.

    With `shortest` each segment has a random limit, so that a ranker trained on them learns nothing from their length; the draw
    depends on the document alone.
    """

    block_tokens: int = Field(100, ge=1, le=512, description="tokens a segment has at most")
    shortest: int | None = Field(None, ge=1, le=512, description="draw limits from here to block_tokens; none: always block_tokens")
    seed: int = Field(0, ge=0, description="seed of the draw")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.shortest is not None and self.shortest > self.block_tokens:
            raise ValueError(f"shortest {self.shortest} exceeds block_tokens {self.block_tokens}")
        return self

    def ranges(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """Segments of as many sentences as their limits allow, shape (n_blocks, 2)."""
        ends = np.append(0, np.flatnonzero(_ends_sentence(costs)) + 1)
        limits = self._limits(costs)
        bounds = [0]
        while bounds[-1] < len(costs):
            furthest = bounds[-1] + next(limits)
            whole = int(ends[np.searchsorted(ends, furthest, side="right") - 1])
            inside = whole if whole > bounds[-1] else furthest  # if no sentence ends within reach, cut this one
            bounds.append(len(costs) if furthest >= len(costs) else inside)
        return between(np.asarray(bounds, dtype=np.int32))

    def _limits(self, costs: NDArray[np.int64]) -> Iterator[int]:
        if self.shortest is None:
            return repeat(self.block_tokens)
        rng = np.random.default_rng((self.seed, zlib.crc32(costs.tobytes())))
        return (int(rng.integers(self.shortest, self.block_tokens + 1)) for _ in count())
