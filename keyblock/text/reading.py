"""Tokens and terms of documents, with their places in the text, from the tokenizer and the analyzer in Python.

Tests hold the compiled way (`keyblock.text.compiled`) to this one, with any Unicode and with real documents.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

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


class Rule(NamedTuple):
    """The rule of a segmenter, for a reader that also cuts.

    Attributes:
        by: where it cuts: after tokens, at the ends of sentences, or at those of parts of the text.
        block_tokens: the most tokens of a block.
        by_token: shape (vocabulary,): the cost of a cut after each token, the token's roles, or nothing, shape (0,).
    """

    by: Literal["tokens", "sentences", "structure"]
    block_tokens: int
    by_token: NDArray[np.uint8]


class CutText(NamedTuple):
    """A text in blocks; PreparedDocument explains `ids` (its token_ids), `bounds`, `starts` and `ends`."""

    ids: Ints
    bounds: Ints
    starts: Ints
    ends: Ints
    terms: Terms


class Reading(NamedTuple):
    """A document's text as tokens.

    Attributes:
        text: the text.
        ids: the tokens, shape (n_tokens,).
        heads, tails: where the tokens start and end in the text, in code points, shape (n_tokens,) each.
    """

    text: str
    ids: Ints
    heads: Ints
    tails: Ints

    def places(self) -> tuple[Ints, Ints]:
        """Where the tokens start and end in the text."""
        return self.heads, self.tails

    def offsets(self, bounds: Ints) -> tuple[Ints, Ints]:
        """Where blocks start and end in the text, in code points, shape (n_blocks,) each, from token ranges, (n_blocks, 2).

        A cut may split a character of several tokens (Hangul): it belongs to the first block, unless the second has no other.
        """
        starts, ends = self.heads[bounds[:, 0]], self.tails[bounds[:, 1] - 1]
        cut_in_two = (bounds[:-1, 1] <= bounds[1:, 0]) & (ends[:-1] < ends[1:])
        starts[1:] = np.where(cut_in_two, np.maximum(starts[1:], ends[:-1]), starts[1:])
        return starts, ends


def encoded(text: str, encoding: Encoding) -> Reading:
    """A reading from the tokenizer's encoding of a text."""
    heads, tails = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2).T
    return Reading(text, np.asarray(encoding.ids, dtype=np.int32), heads.copy(), tails.copy())


def joined(parts: Sequence[Reading]) -> Reading:
    """The reading of a text from those of its parts, at least one."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.text) for part in parts[:-1])], dtype=np.int32)
    ids, heads, tails = (
        np.concatenate(column)
        for column in zip(
            *((part.ids, part.heads + start, part.tails + start) for part, start in zip(parts, starts, strict=True)), strict=True
        )
    )
    return Reading("".join(part.text for part in parts), ids, heads, tails)


def terms_between(text: str, starts: Ints, ends: Ints, analyzer: Analyzer, pause: Callable[[int], object] = int) -> Terms:
    """The analyzer's terms of the blocks between these offsets; `pause` is called with 0 after every AT_ONCE blocks."""
    blocks = []
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True), 1):
        blocks.append(np.asarray(analyzer.keys(text[start:end]), dtype=np.int64))
        if number % AT_ONCE == 0:
            pause(0)
    bounds = np.cumsum([0, *map(len, blocks)], dtype=np.int32)
    return Terms(np.concatenate(blocks) if blocks else np.zeros(0, np.int64), bounds)
