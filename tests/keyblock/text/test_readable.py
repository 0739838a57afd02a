"""Texts as a person reads them: what is no language goes, what may be searched for stays, and no character moves."""

import base64
import hashlib
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text.readable import Oddity, oddities, without_data
from keyblock.text.tokenizer import respelled
from tests.support.compiled import need_compiled

A = "The notice period for the flat is three months."
DRAWN = Random(1)
BASE64 = base64.b64encode(DRAWN.randbytes(3600)).decode()
BYTES = [f"{byte:02x}" for byte in DRAWN.randbytes(320)]
HEX = "\n".join(f"{n:08x}  {' '.join(BYTES[n : n + 16])}  |.ELF....end of it|" for n in range(0, 320, 16))
NUMBERS = [f"{DRAWN.random() * 100:.2f}" for _ in range(300)]
MINIFIED = (
    '!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?t(exports):"function"==typeof define&&define.amd?'
    'define(["exports"],t):t((e=e||self).x={})}(this,function(e){'
    '"use strict";var t=Math.PI;function n(r){return r*t/180}e.area=function(r){return t*r*r};throw new Error("Invalid argument");'
    "e.deg=n});"
)
DATA = {
    "data URI": f"data:image/png;base64,{BASE64}",
    "base64 in lines": "\n".join(BASE64[at : at + 64] for at in range(0, len(BASE64), 64)),
    "hashes": "\n".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(5)),
    "URL": "https://example.org/" + "a/b-c_d%20e/" * 30 + "?x=1&y=2",
    "minified code": MINIFIED * 8,
    "hex dump": HEX,
    "bytes in one line": " ".join(BYTES * 100),
    "numbers": " ".join(NUMBERS),
    "rows of numbers": "\n".join(",".join(NUMBERS[n : n + 10]) for n in range(0, 300, 10)),
    "word": "a" * 10_000,
    "word in Cyrillic": "я" * 10_000,
}
LANGUAGE = {
    "a hash": f"The checksum is {hashlib.sha256().hexdigest()}, as published, and " * 3,
    "a record": '{"city":"Zurich","price":67,"currency":"CHF","stars":3},{"city":"Bern","price":54,"currency":"CHF","stars":4}' * 3,
    "a table": "| City | Price | Stars |\n|---|---|---|\n" + "".join(f"| City {n} | {n * 7} | {n % 5} |\n" for n in range(40)),
    "labelled numbers": "".join(f"Zurich {n} {n * 2} {n * 3} {n * 5} {n * 7} {n * 8}\n" for n in range(20)),
    "code": "def area(radius):\n    return math.pi * radius ** 2\n\n\ndef deg(angle):\n    return angle * 180 / math.pi\n\n\n" * 5,
    "a log": "2024-01-05T10:00:00Z level=info msg=started port=8080 host=10.0.0.1 path=/var/log/app user=admin\n" * 10,
    "Chinese": "房屋的通知期为三个月，房东必须以书面形式提前通知租户，否则合同将自动延长一年。" * 20,
    "Japanese": "部屋の解約予告期間は三か月です。" * 20,
    "Thai": "ระยะเวลา\u200bแจ้ง\u200bล่วงหน้าสำหรับแฟลตคือสามเดือน" * 20,
    "Hindi": "फ्लैट के लिए नोटिस की अवधि तीन महीने है। क्\u200dष " * 10,
    "Persian": "می\u200cخواهم " * 40,
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 200,
    "German": "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenverordnung gilt. " * 5,
}


def read(text: str) -> str:
    """The text as a person reads it, found in Python."""
    for _, rows, spelled in oddities([text]):
        return "".join(without_data(respelled(text) if spelled else text, rows))
    return text


@pytest.mark.parametrize("name", DATA)
def test_data_goes_and_the_sentence_beside_it_stays(name: str) -> None:
    for text in (f"{DATA[name]}\n\n{A}", f"{A}\n\n{DATA[name]}", f"{A} {DATA[name]}\n{A}"):
        found = read(text)
        assert "".join(found.split()) == "".join(text.replace(DATA[name], "").split())
        assert all(found[at] == text[at] for at in range(len(text)) if found[at].strip())
        assert len(found) == len(text)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_stays_as_it_is(name: str) -> None:
    assert read(LANGUAGE[name]) == LANGUAGE[name]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (A.replace(" ", "\u200b"), A),
        (A.replace(" ", "\u2060"), A),
        (A.replace(" ", "\ufeff"), A),
        ("".join(chr(ord(c) + 0xFEE0) if c.strip() else c for c in A), A),
        ("\uff21\uff30\uff29は、三\u200b月\uff1a", "APIは、三\u200b月\uff1a"),
    ],
)
def test_plainer_spellings(text: str, found: str) -> None:
    assert read(text) == found


PIECES = st.sampled_from(
    [*'aA1=\n ;(,|"\u200b\uff21\ufeffя房ä\ud800\U0001f600', "a" * 70, "0f " * 30, "x=(1);", BASE64[:90], "12.5 " * 20, A]
)


@given(st.one_of(st.text(st.characters(codec=None)), st.lists(PIECES, max_size=60).map("".join)))
@example("a" * 64)
@example("\ud800" * 64)
def test_no_character_moves_and_the_compiled_part_finds_the_same(text: str) -> None:
    found = read(text)
    assert len(found) == len(text)
    assert read(found) == found or len(text) > 128
    assert [described(one) for one in oddities([text, A])] == [
        described(Oddity(*one)) for one in need_compiled().oddities([text, A])
    ]


def described(odd: Oddity) -> tuple[int, list[int], bool]:
    return odd.number, odd.rows.tolist(), odd.spelled


def test_a_text_of_any_length_is_read_in_steps() -> None:
    text = (A + " " + "b4" * 100 + " ") * 5000
    ((_, rows, _),) = oddities([text])
    steps = list(without_data(text, rows))
    assert len(steps) > 5000
    assert "".join("".join(steps).split()) == A.replace(" ", "") * 5000
    assert rows.dtype == np.int32
    blank = "\n" * (1 << 20)
    (odd,) = oddities([blank])
    assert len(list(without_data(blank, odd.rows))) > 16, "also where no step finds anything"
