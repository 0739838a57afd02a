"""What compiled readers are told of each code point."""

import numpy as np

from keyblock.text.characters import CODES
from keyblock.text.compiled_characters import letters
from keyblock.text.scripts import ASSIGNED
from tests.compiled import need_compiled


def test_nothing_is_said_of_characters_that_nobody_asked_about() -> None:
    """Beyond ASSIGNED no character has a case, is a digit or a space."""
    need_compiled()
    lower, flags = letters()
    others = [chr(code) for code in range(ASSIGNED.stop, CODES, 7)]
    assert [c for c in others if c.lower() != c or c.isspace() or c.isdigit() or c.islower() or c.isupper()] == []
    assert (lower[ASSIGNED.stop :] == np.arange(ASSIGNED.stop, CODES)).all()
    assert len(flags) == CODES


def test_what_is_said_is_what_python_says_of_each() -> None:
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
