"""What compiled readers are told of each code point."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from keyblock.text.characters import CODES
from keyblock.text.compiled_tables import letters
from keyblock.text.scripts import ASSIGNED
from keyblock.text.structure import COMMAS, ITEM_MARKS, OTHER_STOPS, PAUSES, PHRASED
from tests.support.compiled import need_compiled

ALL = [chr(code) for code in range(CODES)]


@pytest.mark.parametrize(
    ("flag", "pattern"),
    [
        *(("OTHER_STOP", f"[{OTHER_STOPS}]"), ("COMMA", f"[{COMMAS}]"), ("PAUSE", f"[{PAUSES}]"), ("PHRASED", f"[{PHRASED}]")),
        *(("ITEM_MARK", f"[{ITEM_MARKS}]"), ("WIDE_COLON", "\uff1a"), ("WHITE", r"\s"), ("WORD", r"\w"), ("DECIMAL", r"\d")),
    ],
)
def test_flags_match_the_expressions_of_structure(flag: str, pattern: str) -> None:
    expected = [found.start() for found in re.finditer(pattern, "".join(ALL))]
    assert np.flatnonzero(letters()[1] & need_compiled().FLAGS[flag]).tolist() == expected


@pytest.mark.parametrize(
    ("flag", "has"),
    [
        ("ALPHABETIC", str.isalpha),
        ("LOWER", str.islower),
        ("CAPITAL", lambda character: character.isupper() or character.istitle()),
        ("DIGIT", str.isdigit),
    ],
)
def test_flags_are_those_of_python(flag: str, has: Callable[[str], bool]) -> None:
    expected = [code for code, character in enumerate(ALL) if has(character)]
    assert np.flatnonzero(letters()[1] & need_compiled().FLAGS[flag]).tolist() == expected


def test_the_lower_case_is_that_of_python_and_none_is_beyond_the_assigned_characters() -> None:
    """A lower case of several characters is none."""
    none = need_compiled().NONE
    assert letters()[0].tolist() == [ord(small) if len(small := character.lower()) == 1 else none for character in ALL]
    assert all(character.lower() == character for character in ALL[ASSIGNED.stop :])
