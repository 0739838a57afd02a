"""What `keyblock_native` is told of characters, since it knows no Unicode: computed once, from Python and the tokenizer.

Characters: the properties of each code point.

Runs, for any tokenizer; `keyblock.text.compiled` says what a run is. Pairs of neighbours overlap; an odd stretch is one run, with
all its terms. The English and the universal analyzer are compiled. The analyzers of other languages read each distinct run once.

Units: tokens of SentencePiece and of byte-level BPE, by the tokenizer's own description. `keyblock.text.units` says where units
end. Compiled code cuts a unit of plain characters into tokens; a character is plain if the normalizer treats it alike alone and in
a text. The tokenizer reads every other unit once, and the answer is remembered.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers

from keyblock import native
from keyblock.text import sentences, structure
from keyblock.text.analyzer import STOP_WORDS, Analyzer
from keyblock.text.characters import ASKED, CODES, Kind, is_plain, text_of, word_characters
from keyblock.text.scripts import ASSIGNED, IGNORABLE, UNSPACED, joining, spaced_letters
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import GPT_2, MARK, SOLID, SPACE, SPACES, WITH_NEWLINES, Borders, character_sorts, steps_of
from keyblock.text.universal import VANISHING, caseless, folded

MOST_RUNS = 1 << 18  # most runs that are remembered if runs may be pairs; half as many otherwise
SYLLABLES = range(0xAC00, 0xD7A4)  # Korean syllables: composed of letters, and all treated alike
PAIRED: tuple[range, ...] = (  # Kana, Bopomofo and Han
    *(range(0x3005, 0x3008), range(0x3041, 0x3097), range(0x30A1, 0x30FB), range(0x30FC, 0x30FF), range(0x3105, 0x312E)),
    *(range(0x3400, 0x4DB6), range(0x4E00, 0x9FA6)),
)
METASPACE = "\u2581"
AM = (0xE33, 0xEB3)  # letters of Thai and Lao that cannot end or start a unit, since they become a mark and a letter
LONG_S = 0x17F  # equals an s when case is ignored, as in "'s"
Steps = list[dict[str, Any]]
Codes = NDArray[np.uint32]


def read_characters(tokenizer: Tokenizer, kinds: NDArray[np.uint8]) -> Any:
    """The characters for a tokenizer that reads word by word and has these `kinds`, shape (CODES,)."""
    kinds, normal, folds = kinds.copy(), np.arange(CODES, dtype=np.uint32), np.arange(CODES, dtype=np.uint32)
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
    folds[codes[alike]] = small[alike]
    return native.core.Characters(normal, folds, lower, flags | kinds)


def plain_characters() -> Any:
    """The characters for any tokenizer: the properties that analyzers and sentences need."""
    codes, (lower, flags) = np.arange(CODES, dtype=np.uint32), letters()
    return native.core.Characters(codes, codes, lower, flags)


@cache
def letters() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The lower case of each code point, and its flags without its Kind, shape (CODES,) each."""
    core = native.core
    flag = core.FLAGS
    lower = np.arange(CODES, dtype=np.uint32)
    flags = np.where(word_characters(), flag["WORD"] | flag["NAME"], 0).astype(np.uint32)
    codes = np.flatnonzero(word_characters())
    flags[codes[np.fromiter(map(str.isalpha, text_of(codes)), np.bool_, len(codes))]] |= flag["ALPHABETIC"]
    every = text_of(np.asarray(ASSIGNED))
    for code, character in enumerate(every):
        if (small := character.lower()) != character:
            lower[code] = ord(small) if len(small) == 1 else core.NONE
    for name, test in (
        *(("WHITE", str.isspace), ("LOWER", str.islower), ("DIGIT", str.isdigit), ("DECIMAL", str.isdecimal)),
        *(("CAPITAL", str.isupper), ("CAPITAL", str.istitle)),
    ):
        flags[: len(every)] |= np.where(np.fromiter(map(test, every), np.bool_, len(every)), flag[name], 0).astype(np.uint32)
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


def run_reader(analyzer: Analyzer, characters: Any) -> Any:
    """The compiled reader that finds the runs of texts and, if the analyzer is compiled, their terms.

    Args:
        analyzer: any analyzer.
        characters: the properties of each code point, for the English analyzer.
    """
    config = analyzer.config
    if config.name == "universal":
        flags, steps, several = _folds()
        return native.core.RunReader(flags, native.core.Universal(native.core.Spellings(steps, several)), MOST_RUNS)
    flags = run_kinds() | _flagged(word_characters(), "IN_RUN") | _ends()
    if config.name != "english":
        return native.core.RunReader(flags | _flagged(paired_characters(), "PAIRED"), None, MOST_RUNS)
    english = native.core.English(characters, set(STOP_WORDS if config.stop_words else ()), config.stem)
    return native.core.RunReader(flags, english, MOST_RUNS // 2)


def _flagged(flagged: NDArray[np.bool_], name: str) -> Codes:
    return np.where(flagged, np.uint32(native.core.RUNS[name]), np.uint32(0))


def _ends() -> Codes:
    ends = np.zeros(CODES, np.bool_)
    ends[list(map(ord, sentences.MARKS + sentences.FULL_STOPS + sentences.BREAKS))] = True
    return _flagged(ends, "ENDS_SENTENCE")


@cache
def paired_characters() -> NDArray[np.bool_]:
    """Whether each code point stays itself in a pair, with any neighbours, shape (CODES,)."""
    found = np.zeros(CODES, np.bool_)
    found[SYLLABLES.start : SYLLABLES.stop] = True
    found[[code for codes in PAIRED for code in codes if folded(caseless(chr(code))) == chr(code)]] = True
    found.setflags(write=False)  # it is shared
    return found


@cache
def run_kinds() -> NDArray[np.uint8]:
    """How analyzers read each code point, shape (CODES,): SPACE, ODD, or LETTER if it does not change its neighbours."""
    kinds = np.full(CODES, Kind.ODD, dtype=np.uint8)
    kinds[[code for codes in ASKED for code in codes if is_plain(chr(code))]] = Kind.LETTER
    kinds[[ord(space) for space in SPACES]] = Kind.SPACE
    within = re.compile(f"[{UNSPACED}{IGNORABLE}]")
    for code in range(ASSIGNED.stop):
        character = chr(code)
        if within.match(character):
            kinds[code] = Kind.ODD  # for example Hangzhou's numerals, which form pairs with Han
        elif unicodedata.category(character)[0] in "PSZ" and kinds[code] == Kind.ODD:
            kinds[code] = Kind.LETTER
    kinds.setflags(write=False)  # it is shared
    return kinds


@cache
def _folds() -> tuple[Codes, Codes, list[str]]:
    """How the universal analyzer reads each code point: its flags, the step to its folded code point, and strings as in `_normal`.

    The flags are RUNS of `keyblock_native` and a Kind, which is ODD if folding depends on a character's neighbours. Only its
    characters make a text a word or a pair, so text between those is read separately.
    """
    every = "".join(map(chr, ASSIGNED))
    words, pairs = (_within(characters, every) for characters in (spaced_letters(), UNSPACED))
    kinds = np.full(CODES, Kind.LETTER, np.uint32)
    kinds[[ord(space) for space in SPACES]] = Kind.SPACE
    kinds[ASSIGNED.stop :] = Kind.ODD
    kinds[: len(every)][_within(IGNORABLE, every)] = Kind.ODD
    vanishes, marks = np.zeros(CODES, np.bool_), np.zeros(CODES, np.uint32)
    steps, several = np.zeros(CODES, np.uint32), list[str]()
    for code in np.flatnonzero((words | pairs) & (kinds[: len(every)] == Kind.LETTER)).tolist():
        if not _alone(every[code]):
            kinds[code] = Kind.ODD
            continue
        spelling = folded(caseless(every[code]))
        vanishes[code] = not spelling
        marks[code] = combining_classes(unicodedata.normalize("NFKC", every[code]))  # marks are sorted before the case goes
        if len(spelling) == 1:
            steps[code] = (ord(spelling) - code) % (1 << 32)
        else:
            steps[code] = native.core.SEVERAL + len(several)
            several.append(spelling)
    in_words, paired = np.zeros(CODES, np.bool_), np.zeros(CODES, np.bool_)
    in_words[: len(every)], paired[: len(every)] = words, pairs & (kinds[: len(every)] == Kind.LETTER)
    marks |= _flagged(vanishes, "VANISHES")
    return kinds | _flagged(in_words, "IN_RUN") | _flagged(paired, "PAIRED") | marks | _ends(), steps, several


def _within(characters: str, every: str) -> NDArray[np.bool_]:
    """Whether each character of a text is in a regular expression's set."""
    found = np.zeros(len(every), np.bool_)
    found[[match.start() for match in re.finditer(f"[{characters}]", every)]] = True
    return found


def _alone(character: str) -> bool:
    """Whether the character becomes the same text behind any other character.

    No part of that text joins the character before it, except for parts that vanish behind any. This must hold before the case
    goes, too: U+0345 is then a mark that joins a letter, and afterwards a letter.
    """
    joins = joining()
    parts = unicodedata.normalize("NFKC", character) + caseless(character)
    return all(VANISHING.match(c) or (c not in joins and not "\u0300" <= c <= "\u036f") for c in parts)


def unit_reader(tokenizer: Backend, borders: Borders) -> Any:
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


def _added(tokenizer: Backend) -> Iterator[str]:
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
    bare = Backend(models.BPE())
    described = json.loads(bare.to_str()) | {"normalizer": {"type": "Sequence", "normalizers": steps}}
    found: normalizers.Normalizer | None = Backend.from_str(json.dumps(described)).normalizer
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
