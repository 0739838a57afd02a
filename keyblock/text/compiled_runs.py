"""Finds runs and their terms with `keyblock_native`, for any tokenizer.

`keyblock.text.compiled` says what a run is. Pairs of neighbours overlap; an odd stretch is one run, with all its terms.

The English and the universal analyzer are compiled. The analyzers of other languages read each distinct run once.
"""

import re
import unicodedata
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.text import sentences
from keyblock.text.analyzer import STOP_WORDS, Analyzer
from keyblock.text.characters import CODES, Kind, spaced_kinds, word_characters
from keyblock.text.compiled_units import combining_classes
from keyblock.text.normalization import VANISHING, caseless, folded
from keyblock.text.scripts import ASSIGNED, IGNORABLE, UNSPACED, joining, spaced_letters

MOST = 1 << 18  # most runs that are remembered if runs may be pairs; half as many otherwise
SYLLABLES = range(0xAC00, 0xD7A4)  # Korean syllables: composed of letters, and all treated alike
PAIRED: tuple[range, ...] = (  # Kana, Bopomofo and Han
    *(range(0x3005, 0x3008), range(0x3041, 0x3097), range(0x30A1, 0x30FB), range(0x30FC, 0x30FF), range(0x3105, 0x312E)),
    *(range(0x3400, 0x4DB6), range(0x4E00, 0x9FA6)),
)
Codes = NDArray[np.uint32]


def run_reader(analyzer: Analyzer, characters: Any) -> Any:
    """The compiled reader that finds the runs of texts and, if the analyzer is compiled, their terms.

    Args:
        analyzer: any analyzer.
        characters: the properties of each code point, for the English analyzer.
    """
    config = analyzer.config
    if config.name == "universal":
        folds = _folds()
        universal = native.core.Universal(native.core.Spellings(folds.steps, folds.several))
        return native.core.RunReader(folds.flags, universal, MOST)
    flags = run_kinds() | _flagged(word_characters(), "IN_RUN") | _ends()
    if config.name != "english":
        return native.core.RunReader(flags | _flagged(paired_characters(), "PAIRED"), None, MOST)
    english = native.core.English(characters, set(STOP_WORDS if config.stop_words else ()), config.stem)
    return native.core.RunReader(flags, english, MOST // 2)


def _flagged(flagged: NDArray[np.bool_], name: str) -> Codes:
    return np.where(flagged, np.uint32(native.core.RUNS[name]), np.uint32(0))


def _ends() -> Codes:
    return _flagged(sentences.KINDS >= sentences.ENDING, "ENDS_SENTENCE")


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
    kinds = spaced_kinds().copy()
    within = re.compile(f"[{UNSPACED}{IGNORABLE}]")
    for code in range(ASSIGNED.stop):
        character = chr(code)
        if within.match(character):
            kinds[code] = Kind.ODD  # for example Hangzhou's numerals, which form pairs with Han
        elif unicodedata.category(character)[0] in "PSZ" and kinds[code] == Kind.ODD:
            kinds[code] = Kind.LETTER
    kinds.setflags(write=False)  # it is shared
    return kinds


class Folds(NamedTuple):
    """How the universal analyzer reads characters.

    Attributes:
        flags: RUNS of `keyblock_native` and a Kind, which is ODD if folding depends on a character's neighbours, shape (CODES,).
        steps: the distance to the folded code point, or SEVERAL plus an index in `several`, shape (CODES,).
        several: the strings of characters that do not fold to a single one.
    """

    flags: Codes
    steps: Codes
    several: list[str]


@cache
def _folds() -> Folds:
    """The folds of all characters. Only its characters make a text a word or a pair, so text between those is read separately."""
    every = "".join(map(chr, ASSIGNED))
    words, pairs = (_within(characters, every) for characters in (spaced_letters(), UNSPACED))
    kinds = np.full(CODES, Kind.LETTER, np.uint32)
    kinds[[ord(space) for space in " \t\n\r"]] = Kind.SPACE
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
    return Folds(kinds | _flagged(in_words, "IN_RUN") | _flagged(paired, "PAIRED") | marks | _ends(), steps, several)


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
