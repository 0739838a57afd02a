"""Reading piece by piece equals orjson at once, on what is JSON and on what is not."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import RequestError
from service.http.bodies import parsing, piecewise
from service.http.bodies.parsing import DOCUMENTS, decode
from service.http.bodies.piecewise import STEPS, Pieces
from service.settings import Limits

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(
    ['"', "\\", '\\"', "\n", "[{", "]}", "😀", "a,b:c"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
LAYOUTS: list[dict[str, Any]] = [
    {"ensure_ascii": True},
    {"ensure_ascii": False},
    {"indent": 1},
    {"separators": (",", ":")},
    {"separators": (" ,\r\n", "\t:  ")},
]


def load(body: bytes, *, array: int = 100, string: int = 1000) -> dict[str, Any]:
    return Pieces(bytearray(body), Limits(max_documents=array, max_document_chars=string), parsing.decode).request(DOCUMENTS)


@given(OBJECTS, st.sampled_from(LAYOUTS), st.sampled_from([b"", b" \n"]))
def test_equals_orjson(value: dict[str, Any], layout: dict[str, Any], around: bytes) -> None:
    body = around + json.dumps(value, **layout).encode() + around
    assert load(body) == orjson.loads(body)


@given(OBJECTS, st.integers(1, 3))
def test_objects_split_at_every_depth_equal_orjson(value: dict[str, Any], window: int) -> None:
    """However small a part is decoded at once; the documents of a query may be longer than any other value."""
    documents = [value, {"text": "a", "inner": value}]
    with_numbers = any(isinstance(scalar, float | int) for scalar in _scalars(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piecewise, "WINDOW", 40 if with_numbers else window)  # a number is read within one window
        patch.setattr(piecewise, "_UNREAD_BYTES", 2 * len(json.dumps(value)) + 10)
        for body in ({"documents": documents}, {"queries": [{"query": "q", "documents": documents}, {"query": "r"}]}):
            assert load(json.dumps(body).encode()) == body


def _scalars(value: object) -> list[object]:
    if isinstance(value, dict):
        return [scalar for inner in value.values() for scalar in _scalars(inner)]
    if isinstance(value, list):
        return [scalar for inner in value for scalar in _scalars(inner)]
    return [0] if value is None else [value]


@given(OBJECTS, st.integers(0, 200), st.sampled_from(list(b'",:[]{}\\x0 \x00\xff')), st.booleans())
def test_agrees_with_orjson_about_what_is_not_json(value: dict[str, Any], place: int, byte: int, replace: bool) -> None:
    body = bytearray(orjson.dumps(value))
    place %= len(body)
    body[place : place + replace] = bytes([byte])
    try:
        expected = orjson.loads(body)
    except orjson.JSONDecodeError:
        with pytest.raises(RequestError) as caught:
            load(bytes(body))
        assert caught.value.status in (400, 422)
    else:
        if isinstance(expected, dict):
            assert load(bytes(body)) == expected


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "ends too early"),
        (b"{", "ends too early"),
        (b'{"a" 1}', "expected ':'"),
        (b'{"a": 1 "b": 2}', "expected ',' or '}'"),
        (b'{"a": [1 2]}', "expected ',' or ']'"),
        (b'{"documents": [1,]}', "expected a value"),
        (b'{"a": 1,}', "name in quotes"),
        (b"{a: 1}", "name in quotes"),
        (b'{"a": "x', "string is not closed"),
        (b'{"a": "x\\"}', "string is not closed"),
        (b'{"a": {"b": [1}', "not closed"),
        (b'{"a": nul}', "not JSON"),
        (b'{"a": 1} x', "something follows"),
        (b'{"a": {"b": ' + b"[" * 300, "nested more than"),
    ],
)
def test_not_json_says_what_and_where(body: bytes, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as caught:
        load(body)
    assert caught.value.status == 400
    assert "(byte " in caught.value.message


def test_a_list_is_not_an_object() -> None:
    with pytest.raises(RequestError, match="must be a JSON object") as caught:
        load(b' ["a"]')
    assert caught.value.status == 422


def test_no_step_decodes_more_than_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps the interpreter lock short: the whole of a large body is never decoded at once."""
    monkeypatch.setattr(parsing, "decode", lambda piece, start: (steps.append(len(piece)), decode(piece, start))[1])
    steps: list[int] = []
    documents = [f"document {n} " * 50 for n in range(50)]
    titled = {"title": "T", "text": "x" * (3 << 20)}
    loaded = load(orjson.dumps({"query": "q", "documents": [*documents, titled]}), string=1 << 30)
    assert loaded["documents"] == [*documents, titled]
    assert len(steps) == 3 + 50 + 4  # names and query; documents; the last one's names and values
    assert max(steps) == len(titled["text"]) + 2


def test_long_array_is_refused_before_it_is_read() -> None:
    with pytest.raises(RequestError, match="documents: has more than 3 elements"):
        load(b'{"documents": ["a", "b", "c", nonsense', array=3)


@pytest.mark.parametrize("text", ["x" * 400, "水" * 99, "😀" * 50, '"' * 400, "\\" * 31, "\x01a" * 70])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_no_string_within_the_limit_is_refused_however_it_is_written(text: str, ascii_only: bool) -> None:
    body = json.dumps({"documents": [text]}, ensure_ascii=ascii_only).encode()
    assert load(body, string=len(text)) == {"documents": [text]}


@pytest.mark.parametrize("text", ["x" * 400, "水" * 400, "😀" * 400])
def test_a_string_far_over_the_limit_is_refused_undecoded(text: str) -> None:
    body = json.dumps({"documents": ["a", text]}, ensure_ascii=False).encode()
    with pytest.raises(RequestError, match=r"documents\[1\]: has at least \d+ characters, limit 99") as caught:
        load(body, string=99)
    assert caught.value.status == 422


@pytest.mark.parametrize("given", [[["x" * 999]], {"text": "x" * 999}, "x" * 999], ids=["list", "object", "string"])
def test_what_holds_no_documents_is_not_limited(given: Any) -> None:
    """A long query is cut with a warning, and an unknown field is named in one: neither is refused."""
    value = {"query": given, "other": [given] * 9, "documents": [{"text": "a", "other": given}]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piecewise, "WINDOW", 2000)
        assert load(orjson.dumps(value), array=3, string=99) == value
        with pytest.raises(RequestError, match=r"documents\[0\].text: has at least"):
            load(orjson.dumps({"documents": [{"text": "x" * 9999}]}), string=99)
        with pytest.raises(RequestError, match="documents: has at least"):
            load(orjson.dumps({"documents": "x" * 9999}), string=99)


MIB = 1 << 20
HOSTILE = {
    "a long list": (b'{"query": "q", "x": [' + b"1," * MIB + b"1]}", "x: there are too many"),
    "a long string": (b'{"x": "' + b"y" * 2 * MIB + b'"}', "x: holds 2.0 MiB"),
    "many lists": (b'{"x": [' + b"[]," * MIB + b"1]}", "x: there are too many"),
    "many strings": (b'{"x": [' + b'"",' * MIB + b"1]}", "x: there are too many"),
    "many members": (b"{" + b'"x":1,' * MIB + b'"y":1}', "there are too many"),
    "numbers in many options": (
        b"{" + b",".join(b'"%d": [%b1]' % (n, b"1," * (MIB // 4)) for n in range(9)) + b"}",
        "0: there are too many",
    ),
    "a long list as a query": (b'{"query": [' + b"1," * MIB + b"1]}", "query: there are too many"),
    "a long list as a text": (b'{"documents": [{"text": [' + b"1," * MIB + b"1]}]}", r"documents\[0\].text: holds"),
    "a long list in a document": (b'{"documents": [{"x": [' + b"1," * MIB + b"1]}]}", r"documents\[0\].x: holds"),
    "a list as a document": (b'{"documents": ["a", [' + b"1," * MIB + b"1]]}", r"documents\[1\]: holds"),
    "documents as an object": (b'{"documents": {"x": [' + b"1," * MIB + b"1]}}", "documents: holds"),
    "members of a document": (
        b'{"documents": [{' + b",".join(b'"%d": 1' % n for n in range(257)) + b', "text": "' + b"y" * 2 * MIB + b'"}]}',
        r"documents\[0\]: has more than 256 members",
    ),
}


@pytest.mark.parametrize(("body", "said"), HOSTILE.values(), ids=HOSTILE)
def test_what_nobody_reads_is_not_walked(body: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise, "STEPS", STEPS // 16)
    with pytest.raises(RequestError, match=f"^{said}") as caught:
        load(body, string=4 * MIB)
    assert caught.value.status == 422


@given(st.lists(st.sampled_from([b'\\"', b"\\\\", b"a", b"\\n"]), max_size=12), st.integers(1, 5))
def test_a_string_ends_at_the_quote_that_is_not_escaped(parts: list[bytes], window: int) -> None:
    body = b'{"documents": ["' + b"".join(parts) + b'", "b"]}'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piecewise, "WINDOW", window)
        assert load(body) == orjson.loads(body)


def line(body: bytes, *, string: int = 1000) -> dict[str, Any]:
    return Pieces(bytearray(body), Limits(max_documents=100, max_document_chars=string), parsing.decode).line()


@given(OBJECTS, st.sampled_from(LAYOUTS))
def test_a_line_equals_orjson(value: dict[str, Any], layout: dict[str, Any]) -> None:
    body = json.dumps({"id": "a", **value}, **layout).encode()
    assert line(body) == orjson.loads(body)


HOSTILE_LINES = {
    "lists as a text": (b'{"id": "a", "text": [' + b"[]," * MIB + b"[]]}", "text: there are too many"),
    "a number of many digits": (b'{"id": ' + b"7" * 2 * MIB + b"}", "not JSON"),
    "a text that is too long": (b'{"text": "' + b"y" * 5 * MIB + b'"}', "text: has at least"),
    "an id of megabytes": (b'{"id": "' + b"y" * 2 * MIB + b'"}', "id: holds 2.0 MiB"),
    "many members": (b"{" + b'"x":1,' * MIB + b'"y":1}', "there are too many"),
    "a list": (b"[" + b"[]," * MIB + b"1]", "the line must be a JSON object"),
}


@pytest.mark.parametrize(("body", "said"), HOSTILE_LINES.values(), ids=HOSTILE_LINES)
def test_a_hostile_line_is_not_walked(body: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise, "STEPS", STEPS // 16)
    with pytest.raises(RequestError, match=said):
        line(body, string=MIB)
