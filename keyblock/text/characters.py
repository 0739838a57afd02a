"""How a tokenizer treats single characters: which ones it drops, separates, or reads as part of a word.

The tokenizer itself decides: it encodes a text in which each character is between two letters. Looking up characters is then
enough to cut words out of a text, and the tokens of a word do not depend on its neighbours.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

CODES = 0x110000  # Unicode code points
ASKED = (  # the characters that are tried: blocks of alphabets with spaces between words, of punctuation and of symbols
    *(range(0x09, 0x0530), range(0x10D0, 0x1100), range(0x1E00, 0x1F00), range(0x2000, 0x2070), range(0x20A0, 0x20C0)),
    *(range(0x2100, 0x2400), range(0x2500, 0x2600), range(0x3000, 0x3040), range(0xFF01, 0xFF66)),
)
WORD = re.compile(r"\w")
LAST_LETTERS = 0x40000  # higher code points have no letters or digits: they are unassigned or for private use
PIECE = 1 << 16  # code points that are looked up at a time


class Kind(IntEnum):
    """How the tokenizer treats a character."""

    ODD = 0  # anything else: the tokenizer itself reads the text around it between two spaces
    SPACE = 1  # separates words, and is no token
    BREAK = 2  # a separate word
    LETTER = 3  # a part of a word


def character_kinds(tokenizer: Tokenizer) -> NDArray[np.uint8] | None:
    """The Kind of each code point, shape (CODES,); None for a tokenizer that does not read word by word as BERT's does."""
    if not isinstance(tokenizer.model, WordPiece):
        return None  # the description of a large vocabulary takes a second
    return _found_kinds(tokenizer.to_str())


@lru_cache(maxsize=4)  # pipelines of one tokenizer share them
def _found_kinds(description: str) -> NDArray[np.uint8] | None:
    tokenizer = Tokenizer.from_str(description)
    if not reads_words(tokenizer):
        return None
    kinds = np.full(CODES, Kind.ODD, dtype=np.uint8)
    characters = [chr(code) for codes in ASKED for code in codes if is_plain(chr(code))]
    kinds[list(map(ord, characters))] = list(_kinds_of(tokenizer, characters))
    kinds.setflags(write=False)
    return kinds


def text_of(codes: NDArray[np.integer[Any]]) -> str:
    """The characters of code points, shape (n_codes,), as one text."""
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


@cache
def word_characters() -> NDArray[np.bool_]:
    """Whether each code point is a part of a term, as the analyzers see it, shape (CODES,)."""
    words = np.zeros(CODES, dtype=np.bool_)
    for first in range(0, LAST_LETTERS, PIECE):
        piece = text_of(np.arange(first, first + PIECE))
        for run in re.finditer(r"\w+", piece):
            words[first + run.start() : first + run.end()] = True
    words.setflags(write=False)  # it is shared
    return words


def reads_words(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer finds words and punctuation character by character, and tokens within them (BERT's WordPiece).

    False if the vocabulary lacks the token for unknown words: such a tokenizer refuses a text with an unknown word.
    """
    model, added = tokenizer.model, tokenizer.get_added_tokens_decoder().values()
    if not (isinstance(model, WordPiece) and isinstance(tokenizer.normalizer, BertNormalizer)):
        return False
    if not isinstance(tokenizer.pre_tokenizer, BertPreTokenizer) or model.token_to_id(model.unk_token) is None:
        return False
    return all(token.special for token in added)  # added tokens that are not special are found within words, too


def is_plain(character: str) -> bool:
    """Whether its lower case is one character of the same sort whatever its neighbours, and it is no control or combining mark."""
    lower = character.lower()
    same_sort = len(lower) == 1 and bool(WORD.match(lower)) == bool(WORD.match(character))
    sigma = character in "Σς"  # its lower case in Python depends on its neighbours
    return character in "\t\n\r" or (same_sort and not sigma and unicodedata.category(character)[0] not in "CM")


def _kinds_of(tokenizer: Tokenizer, characters: Iterable[str]) -> Iterable[Kind]:
    """The kinds of characters, from the words that the tokenizer finds in "aCb"."""
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
