"""What a tokenizer does with single characters: which ones it drops, keeps apart, or reads as part of a word.

A tokenizer is asked, not described: each character stands between two letters in one text that it encodes. Words can then be cut
out of a text by looking their characters up, and what the tokenizer makes of a word does not depend on its neighbours.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

CODES = 0x110000  # Unicode code points
ASKED = (  # the blocks of alphabets that put spaces between words, and of punctuation and symbols
    *(range(0x09, 0x0530), range(0x10D0, 0x1100), range(0x1E00, 0x1F00), range(0x2000, 0x2070), range(0x20A0, 0x20C0)),
    *(range(0x2100, 0x2400), range(0x2500, 0x2600), range(0x3000, 0x3040), range(0xFF01, 0xFF66)),
)
WORD = re.compile(r"\w")
LAST_LETTERS = 0x40000  # no letters or digits are beyond: planes for private use, and none that are assigned
PIECE = 1 << 16  # code points that are asked about at a time
MOST_KINDS = 4  # tokenizers whose kinds are kept


class Kind(IntEnum):
    """What a character is to the tokenizer."""

    ODD = 0  # anything else: what stands with it between two spaces is left to the tokenizer
    SPACE = 1  # stands between words, and is no token
    BREAK = 2  # a word of its own
    LETTER = 3  # a part of a word


def character_kinds(tokenizer: Tokenizer) -> NDArray[np.uint8] | None:
    """The Kind of each code point, shape (CODES,); None for a tokenizer that does not read word by word as BERT's does."""
    if not isinstance(tokenizer.model, WordPiece):
        return None  # the description of a large vocabulary takes a second
    description = tokenizer.to_str()
    if description not in _kinds:
        if len(_kinds) >= MOST_KINDS:
            _kinds.clear()
        _kinds[description] = _found_kinds(tokenizer)
    return _kinds[description]


_kinds: dict[str, NDArray[np.uint8] | None] = {}
"""By the tokenizer's description: pipelines of one tokenizer share them."""


def _found_kinds(tokenizer: Tokenizer) -> NDArray[np.uint8] | None:
    if not reads_words(tokenizer):
        return None
    kinds = np.full(CODES, Kind.ODD, dtype=np.uint8)
    asked = [chr(code) for codes in ASKED for code in codes if _plain(chr(code))]
    kinds[list(map(ord, asked))] = list(_kinds_of(tokenizer, asked))
    kinds.setflags(write=False)
    return kinds


def ends_word(tokenizer: Tokenizer, character: str) -> bool:
    """Whether a tokenizer that `reads_words` reads a character apart from the letters around it."""
    if "\ud800" <= character <= "\udfff":  # which no tokenizer takes
        return False
    (kind,) = _kinds_of(tokenizer, [character])
    return kind in (Kind.SPACE, Kind.BREAK)


def text_of(codes: NDArray[np.integer[Any]]) -> str:
    """The characters of code points, shape (n_codes,), as one text."""
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


@cache
def word_characters() -> NDArray[np.bool_]:
    """Whether each code point is a part of a term, as analyzers find them, shape (CODES,)."""
    words = np.zeros(CODES, dtype=np.bool_)
    for first in range(0, LAST_LETTERS, PIECE):
        piece = text_of(np.arange(first, first + PIECE))
        for run in re.finditer(r"\w+", piece):
            words[first + run.start() : first + run.end()] = True
    words.setflags(write=False)  # it is shared
    return words


@cache
def spaced_kinds() -> NDArray[np.uint8]:
    """What each code point is to an analyzer alone: SPACE, LETTER (read apart from its neighbours) or ODD, shape (CODES,)."""
    kinds = np.full(CODES, Kind.ODD, dtype=np.uint8)
    kinds[[code for codes in ASKED for code in codes if _plain(chr(code))]] = Kind.LETTER
    kinds[[ord(space) for space in " \t\n\r"]] = Kind.SPACE
    kinds.setflags(write=False)  # it is shared
    return kinds


def reads_words(tokenizer: Tokenizer) -> bool:
    """Whether words and punctuation are found character by character, and tokens within them (BERT's WordPiece).

    Not so where the vocabulary lacks the token for unknown words: such a tokenizer refuses a text with one.
    """
    model, added = tokenizer.model, tokenizer.get_added_tokens_decoder().values()
    if not (isinstance(model, WordPiece) and isinstance(tokenizer.normalizer, BertNormalizer)):
        return False
    if not isinstance(tokenizer.pre_tokenizer, BertPreTokenizer) or model.token_to_id(model.unk_token) is None:
        return False
    return all(token.special for token in added)  # others are found within words, too


def _plain(character: str) -> bool:
    """Whether it is lower-cased alone, to one character of the same sort, and is no control or combining mark."""
    lower = character.lower()
    alike = len(lower) == 1 and bool(WORD.match(lower)) == bool(WORD.match(character))
    sigma = character in "Σς"  # what Python makes of it depends on its neighbours
    return character in "\t\n\r" or (alike and not sigma and unicodedata.category(character)[0] not in "CM")


def _kinds_of(tokenizer: Tokenizer, characters: Iterable[str]) -> Iterable[Kind]:
    """The kinds of characters, by the words that "aCb" becomes."""
    text = " ".join(f"a{character}b" for character in characters)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    words: dict[int, dict[int | None, list[int]]] = defaultdict(lambda: defaultdict(list))
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        words[start // 4][word] += [start % 4, (end - 1) % 4 + 1]
    found = {
        ((0, 1), (2, 3)): Kind.SPACE,
        ((0, 1), (1, 2), (2, 3)): Kind.BREAK,
        ((0, 3),): Kind.LETTER,
    }
    for number in range((len(text) + 1) // 4):
        spans = tuple((min(places), max(places)) for places in words[number].values())
        yield found.get(spans, Kind.ODD)
