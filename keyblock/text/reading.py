"""Tokens and terms of documents, with their places in the text, from the tokenizer and the analyzer in Python.

Tests hold the compiled way (`keyblock.text.compiled`) to this one, with any Unicode and with real documents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from keyblock.text.analyzer import Analyzer

AT_ONCE = 64  # blocks between two pauses
Ints = NDArray[np.int32]


class Terms(NamedTuple):
    """The terms of several blocks.

    Attributes:
        keys: shape (n_terms,), block by block.
        bounds: shape (n_blocks + 1,), into `keys`.
    """

    keys: NDArray[np.int64]
    bounds: Ints


ENDS_CLAUSE, LEADS_ON = 1, 2  # roles of tokens, see `keyblock.segmenters.token_roles`


class WholeSentences(NamedTuple):
    """The rule of the segmenter `whole_sentences`, for a reader that also cuts.

    Attributes:
        roles: what each token does at its place, shape (vocabulary,).
        block_tokens: the most tokens of a block.
    """

    roles: NDArray[np.uint8]
    block_tokens: int


class ByStructure(NamedTuple):
    """The rule of the segmenter `structure`, for a reader that also cuts.

    Attributes:
        block_tokens: the most tokens of a block.
    """

    block_tokens: int


Rule = WholeSentences | ByStructure
"""The rule of a reader that also cuts."""


class CutText(NamedTuple):
    """A text in blocks; PreparedDocument explains `ids` (its token_ids), `bounds`, `starts` and `ends`."""

    ids: Ints
    bounds: Ints
    starts: Ints
    ends: Ints
    terms: Terms


@dataclass(frozen=True, slots=True)
class Reading:
    """A document's text as tokens and terms.

    Attributes:
        text: the text.
        analyzer: finds its terms.
        ids: the tokens, shape (n_tokens,).
        heads, tails: where the tokens start and end in the text, in code points, shape (n_tokens,) each.
    """

    text: str
    analyzer: Analyzer
    ids: Ints
    heads: Ints
    tails: Ints

    def places(self) -> tuple[Ints, Ints]:
        """Where the tokens start and end in the text, in code points, shape (n_tokens,) each."""
        return self.heads, self.tails

    def offsets(self, bounds: Ints) -> tuple[Ints, Ints]:
        """Where blocks start and end in the text, in code points, shape (n_blocks,) each, from token ranges, (n_blocks, 2)."""
        return self.heads[bounds[:, 0]], self.tails[bounds[:, 1] - 1]

    def terms(self, starts: Ints, ends: Ints, pause: Callable[[int], object] = int) -> Terms:
        """The terms of the blocks between these offsets; `pause` is called with 0 between steps of bounded length."""
        return terms_between(self.text, starts, ends, self.analyzer, pause)


def encoded(text: str, encoding: Encoding, analyzer: Analyzer) -> Reading:
    """A reading from the tokenizer's encoding of a text."""
    heads, tails = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2).T
    return Reading(text, analyzer, np.asarray(encoding.ids, dtype=np.int32), heads.copy(), tails.copy())


def terms_between(text: str, starts: Ints, ends: Ints, analyzer: Analyzer, pause: Callable[[int], object] = int) -> Terms:
    """The analyzer's terms of the blocks between these offsets; `pause` is called with 0 after every AT_ONCE blocks."""
    blocks = []
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True), 1):
        blocks.append(analyzer.keys(text[start:end]))
        if number % AT_ONCE == 0:
            pause(0)
    return concatenated(blocks)


def concatenated(blocks: Sequence[Any]) -> Terms:
    """The terms of several blocks from the keys of each."""
    keys = [np.asarray(block, dtype=np.int64) for block in blocks]
    bounds = np.cumsum([0, *map(len, keys)], dtype=np.int32)
    return Terms(np.concatenate(keys) if keys else np.zeros(0, np.int64), bounds)
