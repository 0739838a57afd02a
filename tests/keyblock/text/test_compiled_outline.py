"""Which characters of a text are what, 64 in a look: the same by any processor, and what the tables say."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock import native
from keyblock.text import sentences
from keyblock.text.characters import CODES, Kind
from keyblock.text.compiled_tables import letters
from tests.support.compiled import need_compiled

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
