"""Runs and their terms found by `keyblock_native`, however tokens are found; `keyblock.text.terms` says what a run is.

The English analyzer and the universal one are compiled; of those of other languages each distinct run is asked once.
"""

import unicodedata
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.text import sentences
from keyblock.text.analyzer import STOP_WORDS, Analyzer
from keyblock.text.characters import CODES, Kind, word_characters
from keyblock.text.normalization import caseless, folded
from keyblock.text.terms import paired_characters, run_kinds

MOST = 1 << 18  # runs that are remembered where they are pairs; else 1 << 17
Codes = NDArray[np.uint32]


def run_reader(analyzer: Analyzer, characters: Any) -> Any:
    """What finds the runs of texts, and their terms where the analyzer is compiled.

    Args:
        analyzer: any.
        characters: what is said of each code point, for the English one.
    """
    config = analyzer.config
    if config.name == "english":
        english = native.core.English(characters, set(STOP_WORDS if config.stop_words else ()), config.stem)
        return native.core.RunReader(run_flags(run_kinds(), paired=False), english, MOST // 2)
    if config.name != "universal":
        return native.core.RunReader(run_flags(run_kinds(), paired=True), None, MOST)
    steps, several, alone = _folds()
    kinds = np.where(alone, run_kinds(), Kind.ODD).astype(np.uint8)
    universal = native.core.Universal(native.core.Spellings(steps, several))
    return native.core.RunReader(run_flags(kinds, paired=True), universal, MOST)


def run_flags(kinds: NDArray[np.uint8], *, paired: bool) -> Codes:
    """What each code point is to a reader of runs, shape (CODES,).

    Args:
        kinds: to the analyzer, shape (CODES,).
        paired: whether it makes pairs of characters.
    """
    flag = native.core.RUNS
    flags = kinds | np.where(word_characters(), np.uint32(flag["IN_RUN"]), np.uint32(0))
    flags |= np.where(sentences.KINDS >= sentences.ENDING, np.uint32(flag["ENDS_SENTENCE"]), np.uint32(0))
    return flags | np.where(paired_characters() & paired, np.uint32(flag["PAIRED"]), np.uint32(0))


@cache
def _folds() -> tuple[Codes, list[str], NDArray[np.bool_]]:
    """What the universal analyzer makes of each character of a word, and whether it is so whatever its neighbours are.

    The first are steps to another code point, shape (CODES,), or SEVERAL and the number of one of the strings.
    """
    steps, several, alone = np.zeros(CODES, np.uint32), list[str](), np.ones(CODES, np.bool_)
    for code in np.flatnonzero(word_characters() & (run_kinds() == Kind.LETTER)).tolist():
        spelling = folded(caseless(chr(code)))
        if not spelling or unicodedata.category(spelling[0])[0] == "M":
            alone[code] = False
        elif len(spelling) == 1:
            steps[code] = (ord(spelling) - code) % (1 << 32)
        else:
            steps[code] = native.core.SEVERAL + len(several)
            several.append(spelling)
    return steps, several, alone
