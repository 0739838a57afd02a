"""Tokens and terms of documents, with their places in the text.

Where the tokenizer reads word by word, as BERT's, so are texts (`keyblock.text.words`); likewise where it reads by units, as
SentencePiece and byte-level BPE (`keyblock.text.unit_reader`). The tokenizer itself reads the others: texts that are mostly words
of more than 64 characters, as in languages without spaces, and all texts of other tokenizers. All ways give the same;
`tests/keyblock/text/test_words.py` and `test_unit_reader.py` hold them to the tokenizer.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from keyblock.text.analyzer import Analyzer
from keyblock.text.rows import Ints

AT_ONCE = 64  # blocks between two pauses


class Terms(NamedTuple):
    """Of several blocks.

    Attributes:
        keys: shape (n_terms,), block by block.
        bounds: shape (n_blocks + 1,), into `keys`.
    """

    keys: NDArray[np.int64]
    bounds: Ints


class WholeSentences(NamedTuple):
    """What the segmenter `whole_sentences` goes by, for a reader that cuts at once.

    Attributes:
        clauses: whether each token ends a clause where a space follows it, shape (vocabulary,).
        block_tokens: tokens a block has at most.
    """

    clauses: NDArray[np.bool_]
    block_tokens: int


class CutText(NamedTuple):
    """A text in blocks: PreparedDocument says what `ids` (its token_ids), `bounds`, `starts` and `ends` are."""

    ids: Ints
    bounds: Ints
    starts: Ints
    ends: Ints
    terms: Terms


class Reading(Protocol):
    """A document's text as tokens and terms."""

    @property
    def text(self) -> str:
        """What was read."""

    @property
    def ids(self) -> Ints:
        """The tokens, shape (n_tokens,)."""

    def places(self) -> tuple[Ints, Ints]:
        """Where the tokens start and end in the text, in code points, shape (n_tokens,) each."""

    def offsets(self, bounds: Ints) -> tuple[Ints, Ints]:
        """Where blocks start and end in the text, in code points, shape (n_blocks,) each, from token ranges, (n_blocks, 2)."""

    def terms(self, starts: Ints, ends: Ints) -> Terms:
        """The terms of the text between such places."""


class EncodedText:
    """What the tokenizer made of the whole text.

    Raises ValueError from `offsets` for a tokenizer that does not say where its tokens stand.
    """

    def __init__(self, text: str, encoding: Encoding, analyzer: Analyzer) -> None:
        self.ids = np.asarray(encoding.ids, dtype=np.int32)
        self.text, self._encoding, self._analyzer = text, encoding, analyzer

    def places(self) -> tuple[Ints, Ints]:
        """See Reading."""
        heads, tails = np.asarray(self._encoding.offsets, dtype=np.int32).reshape(-1, 2).T
        return heads, tails

    def offsets(self, bounds: Ints) -> tuple[Ints, Ints]:
        """See Reading."""
        found = [_characters(self._encoding, first, last - 1) for first, last in bounds.tolist()]
        starts, ends = np.asarray(found, dtype=np.int32).reshape(-1, 2).T
        return np.ascontiguousarray(starts), np.ascontiguousarray(ends)

    def terms(self, starts: Ints, ends: Ints) -> Terms:
        """See Reading."""
        return terms_between(self.text, starts, ends, self._analyzer)


def terms_between(text: str, starts: Ints, ends: Ints, analyzer: Analyzer, pause: Callable[[int], object] = int) -> Terms:
    """What an analyzer makes of the text between such places, which is read again for it; `pause` is called again and again."""
    blocks = []
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True), 1):
        blocks.append(analyzer.keys(text[start:end]))
        if number % AT_ONCE == 0:
            pause(0)
    keys = np.asarray([key for block in blocks for key in block], dtype=np.int64)
    return Terms(keys, np.cumsum([0, *map(len, blocks)], dtype=np.int32))


def _characters(encoding: Encoding, first: int, last: int) -> tuple[int, int]:
    """Code point offsets of tokens `first` to `last`, both included."""
    head, tail = encoding.token_to_chars(first), encoding.token_to_chars(last)
    if head is None or tail is None:
        raise ValueError("the tokenizer does not say where its tokens stand in the text")
    return head[0], tail[1]
