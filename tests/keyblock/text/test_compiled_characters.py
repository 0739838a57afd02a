"""What compiled readers are told of each code point."""

import re

import numpy as np
import pytest

from keyblock.text.characters import CODES
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
