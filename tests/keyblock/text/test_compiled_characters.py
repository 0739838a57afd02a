"""What compiled readers are told of each code point, and that any processor finds it."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock import native
from keyblock.text import sentences
from keyblock.text.characters import CODES, Kind
from keyblock.text.compiled_tables import letters
from keyblock.text.scripts import ASSIGNED
from keyblock.text.structure import COMMAS, ITEM_MARKS, OTHER_STOPS, PAUSES, PHRASED
from tests.support.compiled import need_compiled


def test_characters_beyond_the_assigned_ones_have_no_flags() -> None:
    """Beyond ASSIGNED no character has a case, is a digit or a space."""
    need_compiled()
    lower, flags = letters()
    others = [chr(code) for code in range(ASSIGNED.stop, CODES, 7)]
    assert [c for c in others if c.lower() != c or c.isspace() or c.isdigit() or c.islower() or c.isupper()] == []
    assert (lower[ASSIGNED.stop :] == np.arange(ASSIGNED.stop, CODES)).all()
    assert len(flags) == CODES


@pytest.mark.parametrize(
    ("flag", "pattern"),
    [
        *(("OTHER_STOP", f"[{OTHER_STOPS}]"), ("COMMA", f"[{COMMAS}]"), ("PAUSE", f"[{PAUSES}]"), ("PHRASED", f"[{PHRASED}]")),
        *(("ITEM_MARK", f"[{ITEM_MARKS}]"), ("WIDE_COLON", "\uff1a"), ("WHITE", r"\s"), ("WORD", r"\w"), ("DECIMAL", r"\d")),
    ],
)
def test_flags_of_characters_match_the_expressions_of_structure(flag: str, pattern: str) -> None:
    bit = need_compiled().FLAGS[flag]
    expected = [found.start() for found in re.finditer(pattern, "".join(map(chr, range(CODES))))]
    assert np.flatnonzero(letters()[1] & bit).tolist() == expected


def test_letters_of_all_planes_are_alphabetic() -> None:
    bit = need_compiled().FLAGS["ALPHABETIC"]
    assert np.flatnonzero(letters()[1] & bit).tolist() == [code for code in range(CODES) if chr(code).isalpha()]


def test_the_flags_of_each_character_are_those_of_python() -> None:
    """Whole pieces of an alphabet are asked nothing, where nothing is to be said of them."""
    flag = need_compiled().FLAGS
    lower, flags = letters()
    for code in ASSIGNED:
        character, said = chr(code), int(flags[code])
        small = character.lower()
        assert lower[code] == (ord(small) if len(small) == 1 else need_compiled().NONE), hex(code)
        expected = {
            "WHITE": character.isspace(),
            "LOWER": character.islower(),
            "CAPITAL": character.isupper() or character.istitle(),
            "DIGIT": character.isdigit(),
            "DECIMAL": character.isdecimal(),
        }
        assert {name: bool(said & flag[name]) for name in expected} == expected, hex(code)


ASCII = [chr(code) for code in range(128)]
TEXTS = st.lists(
    st.sampled_from([*ASCII, " ", " ", "\x80", "é", "ÿ", "Ā", "…", "\ud7ff", "\uff21", "\U0001f600"]), max_size=300
).map("".join)


@pytest.fixture(scope="module")
def tables() -> tuple[Any, np.ndarray, np.ndarray]:
    """A table of characters that have every kind, its flags, and what each folds to: '@' to no ASCII, 'z' not 32 further on."""
    need_compiled()
    _, flags = letters()
    kinds = np.arange(CODES) % 3  # one of three is odd
    kinds[[ord(c) for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY"]] = Kind.LETTER
    kinds[[ord(" "), ord("\n")]] = Kind.SPACE
    folded = np.arange(CODES, dtype=np.uint32)
    for c in "ABCDEFGHIJKLMNOPQRSTUVWXY":
        folded[ord(c)] += 32
    folded[ord("@")], folded[ord("z")] = 0x100, ord("a")
    flags = flags | kinds.astype(np.uint32)
    codes = np.arange(CODES, dtype=np.uint32)
    return native.core.Characters(codes, folded, codes, flags), flags, folded


@given(text=TEXTS)
@example(text="z@")
def test_a_text_is_read_as_the_tables_say(tables: tuple[Any, np.ndarray, np.ndarray], text: str) -> None:
    """Any processor's way: the plain one and the one that is chosen here."""
    characters, flags, folded = tables
    for plainly in (True, False):
        rows = native.core.outline(characters, text, plainly)
        assert len(rows) == len(text)
        for character, (*sets, fold) in zip(text, rows.tolist(), strict=True):
            assert sets == _sets(character, flags, folded), repr(character)
            if not sets[-1]:
                assert fold == folded[ord(character)]


def _sets(character: str, flags: np.ndarray, folded: np.ndarray) -> list[int]:
    code = ord(character)
    if code >= 128:
        return [0, 0, 0, 0, 1]
    kind, word = flags[code] & 3, bool(flags[code] & native.core.FLAGS["WORD"])
    odd = kind == Kind.ODD or folded[code] >= 128 or int(folded[code]) - code not in (0, 32)
    return [
        int(kind == Kind.SPACE and not odd),
        int(kind == Kind.LETTER),
        int(word),
        int(sentences.KINDS[code] >= sentences.ENDING),
        int(odd),
    ]
