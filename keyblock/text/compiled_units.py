"""Reads units with `keyblock_native`: tokens of SentencePiece and of byte-level BPE, by the tokenizer's own description.

`keyblock.text.units` says where units end. Compiled code cuts a unit of plain characters into tokens; a character is plain if the
normalizer treats it alike alone and in a text. The tokenizer reads every other unit once, and the answer is remembered.
"""

import json
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers

from keyblock import native
from keyblock.text.characters import CODES
from keyblock.text.scripts import joining
from keyblock.text.units import GPT_2, MARK, SOLID, SPACE, SPACES, WITH_NEWLINES, Borders, character_sorts, steps_of

METASPACE = "\u2581"
AM = (0xE33, 0xEB3)  # letters of Thai and Lao that cannot end or start a unit, since they become a mark and a letter
LONG_S = 0x17F  # equals an s when case is ignored, as in "'s"
Steps = list[dict[str, Any]]
Codes = NDArray[np.uint32]


def unit_reader(tokenizer: Tokenizer, borders: Borders) -> Any:
    """The compiled reader that finds the tokens of this tokenizer's units."""
    normalizer, pre_tokenizer = steps_of(tokenizer.normalizer), steps_of(tokenizer.pre_tokenizer)
    in_bytes = pre_tokenizer[-1]["type"] == "ByteLevel"
    split = _byte_rules(pre_tokenizer) if in_bytes else _sentencepiece_rules(pre_tokenizer)
    described = {
        **(split or {}),
        "breaks_join": borders.breaks_join,
        "words_end": borders.words_end,
        "trim": any(step.get("trim_offsets") for step in steps_of(tokenizer.post_processor)),
        "joins": any(step["type"] == "Precompiled" for step in normalizer),
    }
    rules = native.core.UnitRules()
    for name, value in described.items():
        setattr(rules, name, value)
    sorts, steps, several = _normal(json.dumps(normalizer), in_bytes=in_bytes)
    added, spellings = list(_added(tokenizer)), native.core.Spellings(steps, several)
    model, symbols = _model(tokenizer.model) if split else None, _byte_symbols() if in_bytes else ""
    return native.core.UnitReader(_marked(sorts, borders, added), spellings, rules, symbols, added, model)


def _byte_rules(pre_tokenizer: Steps) -> dict[str, Any] | None:
    """How a byte-level tokenizer splits words; None if this module does not know its rules."""
    *first, last = pre_tokenizer
    if first and last["add_prefix_space"]:  # of each word
        return None
    pattern = first[0]["pattern"]["Regex"] if first else GPT_2
    return {
        "newlines_join": pattern != GPT_2,
        "digits": 3 if pattern == WITH_NEWLINES[1] else 1,
        "marks_in_words": pattern == WITH_NEWLINES[2],
        "prefix": last["add_prefix_space"],
    }


def _sentencepiece_rules(pre_tokenizer: Steps) -> dict[str, Any] | None:
    """How a SentencePiece tokenizer splits words; None if this module does not know its rules."""
    *first, last = pre_tokenizer
    kind = first[0]["type"] if first else ""
    if kind == "Punctuation" and first[0]["behavior"] != "Isolated":
        return None
    return {
        "mark_each": last["prepend_scheme"] == "always",
        "mark_first": last["prepend_scheme"] == "first",
        "keeps_space": kind != "WhitespaceSplit",
        "marks_alone": kind == "Punctuation",
    }


def _added(tokenizer: Tokenizer) -> Iterator[str]:
    """The spellings of tokens that were added to the vocabulary, which are found before all others."""
    for token in tokenizer.get_added_tokens_decoder().values():
        if not token.special and token.content:
            yield token.content
            if tokenizer.normalizer is not None:
                yield tokenizer.normalizer.normalize_str(token.content)


def _model(model: models.Model) -> Any:
    """The compiled model; None if there is none for this kind: then the tokenizer reads each unit once."""
    described = json.loads(model.__getstate__())
    if isinstance(model, models.Unigram):
        if described.get("byte_fallback"):
            return None
        spellings, scores = zip(*described["vocab"], strict=True)
        return native.core.Unigram(list(spellings), list(scores), described["unk_id"])
    if described["continuing_subword_prefix"] or described["end_of_word_suffix"]:
        return None
    vocabulary = described["vocab"]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in described["merges"])
    merges = [token for left, right in pairs for token in (vocabulary[left], vocabulary[right], vocabulary[left + right])]
    symbols = {token: number for token, number in vocabulary.items() if len(token) == 1}
    return native.core.Merges(symbols, merges, vocabulary if described["ignore_merges"] else {})


@cache
def _byte_symbols() -> str:
    """The characters that stand for bytes, in the order of the bytes."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in shown else next(others)) for byte in range(0x100))


def _marked(sorts: Codes, borders: Borders, added: list[str]) -> Codes:
    """The sorts, adapted to the borders and the added tokens of a tokenizer."""
    sorts = sorts.copy()
    sorts[[ord(space) for space in SPACES if space not in borders.spaces]] &= ~np.uint32(SPACE)
    sorts[[ord(token[0]) for token in added]] |= native.core.SORTS["BEGINS_ADDED"]
    return sorts


@lru_cache(maxsize=4)
def _normal(description: str, *, in_bytes: bool) -> tuple[Codes, Codes, list[str]]:
    """The sort of each code point, shape (CODES,), and what the described normalizer makes of the PLAIN ones.

    The latter are steps to another code point, shape (CODES,), or SEVERAL plus an index in the list of strings.
    """
    normalizer = _sequence(json.loads(description))
    sorts, steps, several = _sorts().copy(), np.zeros(CODES, np.uint32), list[str]()
    flag, known = native.core.SORTS, sorts & (SOLID | MARK) != 0
    known[list(AM)] = True
    for code in np.flatnonzero(known).tolist():
        spelling = chr(code) if normalizer is None else normalizer.normalize_str(chr(code))
        if normalizer is not None and not _stands_alone(spelling, known):
            continue
        sorts[code] |= flag["PLAIN"]
        if normalizer is not None:
            sorts[code] |= combining_classes(spelling)
        if len(spelling) > 1:
            steps[code] = native.core.SEVERAL + len(several)
            several.append(spelling)
        else:
            steps[code] = (ord(spelling) - code) % (1 << 32)
    if in_bytes:
        sorts[LONG_S] &= ~np.uint32(flag["PLAIN"])
    sorts.setflags(write=False)  # it is shared
    return sorts, steps, several


def _sequence(steps: Steps) -> normalizers.Normalizer | None:
    """The normalizer with these steps; None if there are none."""
    if not steps:
        return None
    bare = Tokenizer(models.BPE())
    described = json.loads(bare.to_str()) | {"normalizer": {"type": "Sequence", "normalizers": steps}}
    found: normalizers.Normalizer | None = Tokenizer.from_str(json.dumps(described)).normalizer
    return found


def combining_classes(spelling: str) -> int:
    """The combining classes of a spelling's first and last part, as flags of `keyblock_native`; 0 for both if it is empty."""
    parts = unicodedata.normalize("NFD", spelling)
    ends = (parts[:1], parts[-1:])
    return sum(unicodedata.combining(end) << shift for end, shift in zip(ends, native.core.CLASS_SHIFTS, strict=True) if end)


def _stands_alone(spelling: str, known: NDArray[np.bool_]) -> bool:
    """Whether a spelling is read in the same way after any character."""
    return bool(spelling) and METASPACE not in spelling and all(known[ord(c)] and c not in joining() for c in spelling)


@cache
def _sorts() -> Codes:
    """The sort of each code point, with the classes of regular expressions, shape (CODES,)."""
    flag, sorts = native.core.SORTS, character_sorts().astype(np.uint32)
    bits = {"L": flag["LETTER_CLASS"], "N": flag["NUMBER_CLASS"], "M": flag["MARK_CLASS"], "P": flag["PUNCTUATION"], "S": 0}
    sorts[list(AM)] |= flag["LETTER_CLASS"] | flag["MARK_CLASS"]  # in one cluster with the letter before
    for code in np.flatnonzero(sorts & (SOLID | MARK)).tolist():
        sorts[code] |= bits[unicodedata.category(chr(code))[0]]
    sorts[[ord(mark) for mark in "$+<=>^`|~"]] |= flag["PUNCTUATION"]  # Unicode calls these symbols
    sorts.setflags(write=False)  # it is shared
    return sorts
