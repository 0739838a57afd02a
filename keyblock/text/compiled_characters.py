"""The properties of each code point for `keyblock_native`, which knows no Unicode: computed once, from Python and the tokenizer."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.text import sentences, structure
from keyblock.text.characters import CODES, Kind, text_of, word_characters
from keyblock.text.scripts import ASSIGNED
from keyblock.text.tokenizer import Tokenizer

PIECE = 128  # code points that are checked together
WORD_OR_SPACE = re.compile(r"[\w\s]")


def read_characters(tokenizer: Tokenizer, kinds: NDArray[np.uint8]) -> Any:
    """The characters for a tokenizer that reads word by word and has these `kinds`, shape (CODES,)."""
    kinds, normal, folded = kinds.copy(), np.arange(CODES, dtype=np.uint32), np.arange(CODES, dtype=np.uint32)
    lower, flags = letters()
    read = np.flatnonzero((kinds == Kind.BREAK) | (kinds == Kind.LETTER)).tolist()
    for code in read:
        spelling = tokenizer.backend.normalizer.normalize_str(chr(code))
        if len(spelling) == 1:
            normal[code] = ord(spelling)
        else:
            kinds[code] = Kind.ODD
    codes = np.asarray(read, np.intp)
    small = lower[codes].astype(np.intp)  # a character that is read has a lower case of one character
    alike = (kinds[small] == kinds[codes]) & (normal[small] == normal[codes]) & (lower[small] == small)
    alike &= ((flags[small] ^ flags[codes]) & native.core.FLAGS["WORD"]) == 0
    folded[codes[alike]] = small[alike]
    return native.core.Characters(normal, folded, lower, flags | kinds)


def plain_characters() -> Any:
    """The characters for any tokenizer: the properties that analyzers and sentences need."""
    codes, (lower, flags) = np.arange(CODES, dtype=np.uint32), letters()
    return native.core.Characters(codes, codes, lower, flags)


@cache
def letters() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The lower case of each code point, and its flags without its Kind, shape (CODES,) each."""
    core = native.core
    flag = core.FLAGS
    lower, flags = np.arange(CODES, dtype=np.uint32), sentences.KINDS.astype(np.uint32) << core.SIGN_SHIFT
    flags |= np.where(word_characters(), flag["WORD"] | flag["NAME"], 0).astype(np.uint32)
    flags |= np.where(_alphabetic(), flag["ALPHABETIC"], 0).astype(np.uint32)
    every = text_of(np.asarray(ASSIGNED))
    varied = [chr(code) for codes in _varied_pieces(every) for code in codes]
    places = np.fromiter(map(ord, varied), np.intp, len(varied))
    for character in varied:
        if (small := character.lower()) != character:
            lower[ord(character)] = ord(small) if len(small) == 1 else core.NONE
    for name, test in (
        *(("WHITE", str.isspace), ("LOWER", str.islower), ("DIGIT", str.isdigit), ("DECIMAL", str.isdecimal)),
        *(("CAPITAL", str.isupper), ("CAPITAL", str.istitle)),
    ):
        flags[places] |= np.where(np.fromiter(map(test, varied), np.bool_, len(varied)), flag[name], 0).astype(np.uint32)
    for name, characters in (
        *(("MARK", sentences.MARKS), ("FULL_STOP", sentences.FULL_STOPS), ("CLOSING", sentences.CLOSING.replace("\\", ""))),
        *(("OPENING", sentences.OPENING), ("LINE_BREAK", sentences.BREAKS)),
        *(("BULLET", sentences.BULLETS), ("NAME", sentences.IN_NAMES)),
        *(("PAUSE", structure.PAUSES), ("ITEM_MARK", structure.ITEM_MARKS), ("WIDE_COLON", structure.WIDE_COLON)),
    ):
        flags[list(map(ord, characters))] |= flag[name]
    for name, ranges in (("OTHER_STOP", structure.OTHER_STOPS), ("COMMA", structure.COMMAS), ("PHRASED", structure.PHRASED)):
        flags[[match.start() for match in re.finditer(f"[{ranges}]", every)]] |= flag[name]
    return lower, flags


def _alphabetic() -> NDArray[np.bool_]:
    """Whether each code point is a letter, shape (CODES,). Most pieces of word characters hold only letters."""
    letter = word_characters().copy()
    codes = np.flatnonzero(letter)
    text = text_of(codes)
    for start in range(0, len(text), PIECE):
        piece = text[start : start + PIECE]
        if not piece.isalpha():
            letter[codes[start : start + PIECE]] = list(map(str.isalpha, piece))
    return letter


def _varied_pieces(every: str) -> Iterator[range]:
    """Pieces of ASSIGNED that need flags. Most need none: they hold only letters without case, or no word character or space.

    Args:
        every: the characters of ASSIGNED.
    """
    for start in ASSIGNED[::PIECE]:
        piece = every[start : start + PIECE]
        no_case = f"{piece}a".islower() and f"{piece}A".isupper()
        if not (no_case and (piece.isalpha() or WORD_OR_SPACE.search(piece) is None)):
            yield range(start, start + PIECE)
