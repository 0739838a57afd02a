r"""Where a text may be cut so that a tokenizer reads the separate pieces in the same way as the whole text.

In "naïve  words, here", for a SentencePiece tokenizer and for a byte-level one:

unit    the text between two such places: "naïve" and "  words," and " here"; for a byte-level one the comma is a separate unit
solid   a character that every tokenizer sees and that does not merge with a space: a letter, digit, punctuation mark or symbol with
        the same category in Unicode 3.2 and this Python

Both kinds of tokenizers split a text at white space before they look for tokens, and their normalisation depends on neighbouring
characters only. So a text may be cut before white space between two solid characters. A tokenizer's description shows whether it
works this way; all others have no units.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from keyblock.text.characters import CODES

SPACES = " \t\n\r"
MARKS = 8  # the most characters that `ends_solid` looks at: a long text is not cut after a word that ends in so many marks
KNOWN = 0x30000  # code points from here on are not solid
SOFT = "\u0e33\u0eb3\u115f\u1160\u2581\u3164\uff9e\uff9f\uffa0\ufffc\ufffd"  # letters and symbols that join others, or are blank
LOCAL = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "StripAccents")  # normalizers
UNKNOWN = "\U0010fffd"  # a character for private use: no vocabulary has it
BLANKS = (" {2,}", r"\s{2,}|[\n\r\t]", r"\s+")  # the patterns of normalizers that replace only white space
GPT_2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
WITH_NEWLINES = tuple(  # of Qwen 2 and 3, Llama 3, Qwen 3.5: line breaks after a punctuation mark belong to it
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{letter}+|{number}| ?[^\s{other}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for letter, number, other in (
        (r"\p{L}", r"\p{N}", r"\p{L}\p{N}"),
        (r"\p{L}", r"\p{N}{1,3}", r"\p{L}\p{N}"),
        (r"[\p{L}\p{M}]", r"\p{N}", r"\p{L}\p{M}\p{N}"),
    )
)
SPACE, SOLID, MARK, LETTER, NUMBER, OTHER = (1 << bit for bit in range(6))  # sorts of characters, as bits


@dataclass(frozen=True, slots=True)
class Borders:
    """Where the units of a tokenizer end.

    Attributes:
        breaks_join: whether line breaks may be read together with a punctuation mark before them.
        words_end: whether a unit also ends after each word, before a punctuation mark.
        spaces: the characters of SPACES at which the tokenizer splits texts.
    """

    breaks_join: bool
    words_end: bool
    spaces: str = SPACES


@cache
def character_sorts() -> NDArray[np.uint8]:
    """The sort of each code point, shape (CODES,): bits of SPACE, SOLID (LETTER, NUMBER or OTHER) and MARK."""
    sorts = np.zeros(CODES, np.uint8)
    bits = {"L": SOLID | LETTER, "N": SOLID | NUMBER, "P": SOLID | OTHER, "S": SOLID | OTHER, "M": MARK}
    for code in range(KNOWN):
        character = chr(code)
        sort = unicodedata.category(character)[0]
        if sort in bits and unicodedata.ucd_3_2_0.category(character)[0] == sort and character not in SOFT:
            sorts[code] = bits[sort] & _kept(character, sort)
    sorts[[ord(space) for space in SPACES]] = SPACE
    sorts.setflags(write=False)  # it is shared
    return sorts


def _kept(character: str, sort: str) -> int:
    """The bits that remain for a character of this sort when it is normalised."""
    normal = unicodedata.normalize("NFKC", character)
    if " " in normal:  # a diaeresis becomes a space and a mark, which may be dropped
        return 0
    ends_alike = unicodedata.category(normal[-1])[0] == sort  # not as Hebrew's old letters
    return 0xFF if ends_alike else SOLID | MARK


def ends_solid(text: str, end: int) -> bool:
    """Whether white space after this place is read without the text before it: that ends in a solid character and its marks."""
    sorts = character_sorts()
    for place in range(end - 1, max(end - 1 - MARKS, -1), -1):
        if sorts[ord(text[place])] != MARK:
            return bool(sorts[ord(text[place])] & SOLID)
    return False


def last_cut(text: str, low: int, high: int) -> int | None:
    """The last place from `low` up to `high` of a space between two solid characters; None if there is none.

    Words of BERT end there, too.
    """
    sorts = character_sorts()
    place = text.rfind(" ", low, high)
    while place >= 0:
        if place + 1 < len(text) and ends_solid(text, place) and sorts[ord(text[place + 1])] & SOLID:
            return place
        place = text.rfind(" ", low, place)
    return None


def borders_of(tokenizer: Tokenizer) -> Borders | None:
    """Where a tokenizer's units end; None for a tokenizer that is not known to read unit by unit."""
    steps = [steps_of(part) for part in (tokenizer.normalizer, tokenizer.pre_tokenizer)]
    if not _reads_anything(tokenizer.model) or _trims_a_prefix(steps[1], steps_of(tokenizer.post_processor)):
        return None
    added = [token for token in tokenizer.get_added_tokens_decoder().values() if not token.special]
    if isinstance(tokenizer.model, models.BPE | models.Unigram) and _is_metaspace(*steps) and not added:
        spaces = "".join(space for space in SPACES if _splits_at(tokenizer, space))
        return Borders(breaks_join=False, words_end=False, spaces=spaces) if " " in spaces else None
    if isinstance(tokenizer.model, models.BPE) and all(step["type"] == "NFC" for step in steps[0]) and all(map(_within, added)):
        return _byte_level(steps[1], added)
    return None


def _reads_anything(model: models.Model) -> bool:
    """Whether the model reads any word, and always in the same way."""
    if isinstance(model, models.BPE):
        return not model.dropout
    try:
        model.tokenize(UNKNOWN)
    except Exception:  # tokenizers raises bare Exception if the model has no token for unknown characters
        return False
    return True


def steps_of(part: Any) -> list[dict[str, Any]]:
    """The parts of a normalizer, a pre-tokenizer or a post-processor, with nested sequences flattened."""
    return [] if part is None else list(_flat(json.loads(part.__getstate__())))


def _flat(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inner = next((step[name] for name in ("normalizers", "pretokenizers", "processors") if name in step), None)
    if inner is None:
        yield step
    else:
        for each in inner:
            yield from _flat(each)


def _trims_a_prefix(pre_tokenizer: list[dict[str, Any]], post_processor: list[dict[str, Any]]) -> bool:
    """Whether offsets leave out spaces, but differently at the start of a text, which may get a space."""
    trims = any(step.get("trim_offsets") for step in post_processor)  # a pre-tokenizer's own setting does nothing
    return trims and any(step.get("add_prefix_space") for step in (*pre_tokenizer, *post_processor))


def _is_metaspace(normalizer: list[dict[str, Any]], pre_tokenizer: list[dict[str, Any]]) -> bool:
    """Whether the tokenizer reads SentencePiece's words one by one, each with the space before it."""
    if not all(map(_is_local, normalizer)) or not pre_tokenizer:
        return False
    *first, last = pre_tokenizer
    if [step["type"] for step in first] not in ([], ["WhitespaceSplit"], ["Punctuation"]) or last["type"] != "Metaspace":
        return False
    # with "first", a text's first word is marked as after a space, but no other word once the split has removed the spaces
    return bool(last["split"]) and last["replacement"] == "\u2581" and (not first or last["prepend_scheme"] != "first")


def _splits_at(tokenizer: Tokenizer, space: str) -> bool:
    """Whether a SentencePiece tokenizer reads two words with this white space between them as two words."""
    text = f"a{space}a"
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(normal)) == 2


def _is_local(step: dict[str, Any]) -> bool:
    """Whether a normalizer depends only on a character and its combining characters, or only on white space."""
    if step["type"] == "Strip":
        return not step["strip_left"]
    if step["type"] == "Replace":
        return step["pattern"].get("Regex") in BLANKS and step["content"] in (" ", "\u2581")
    return step["type"] in LOCAL


def _within(added: Any) -> bool:
    """Whether an added token never extends from one unit into another."""
    return not (added.rstrip or added.single_word) and re.search(r"\S\s", added.content) is None


def _ends_words(added: Any) -> bool:
    """Whether a word ends inside an added token, as in <think>."""
    sorts = [character_sorts()[ord(character)] for character in added.content]
    return any(first & (LETTER | MARK) and second & OTHER for first, second in pairwise(sorts))  # NFC may join letter and mark


def _byte_level(pre_tokenizer: list[dict[str, Any]], added: list[Any]) -> Borders | None:
    """Where units of byte-level BPE end, by the expression that splits its texts and the added tokens."""
    *first, last = pre_tokenizer or [{"type": ""}]
    if last["type"] != "ByteLevel" or (added and last["add_prefix_space"]):  # text after an added token gets a space, too
        return None
    words_end = not any(map(_ends_words, added))
    if not first and last["use_regex"]:
        return Borders(breaks_join=False, words_end=words_end)
    if len(first) != 1 or last["use_regex"] or first[0]["type"] != "Split":
        return None
    split = first[0]
    if split["behavior"] != "Isolated" or split["invert"]:
        return None
    pattern = split["pattern"].get("Regex")
    return Borders(breaks_join=pattern != GPT_2, words_end=words_end) if pattern in (GPT_2, *WITH_NEWLINES) else None
