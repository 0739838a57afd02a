import asyncio
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from service.errors import RequestError
from service.http.bodies import parsing
from service.http.bodies.parsing import check_head, decode, mend_surrogates, parse, parse_line, read_body
from service.settings import Limits, Settings

LIMITS = Settings(max_body_bytes=1000)
UNITS = st.lists(
    st.sampled_from([r"\ud83d", r"\ude00", r"\uDBFF", r"\uDC00", r"\\", r"\n", r"\"", r"A", "a", "ud800", "é"]), max_size=30
)


@given(UNITS)
def test_surrogates_are_mended_as_pythons_own_parser_reads_them(units: list[str]) -> None:
    """The slow, obvious version: json.loads keeps lone surrogates, and each is then replaced."""
    text = f'"{"".join(units)}"'
    expected = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in json.loads(text))
    assert decode(memoryview(text.encode()), 0) == expected


@given(UNITS, st.integers(1, 9))
def test_windows_make_no_difference(units: list[str], window: int) -> None:
    piece = memoryview(f'"{"".join(units)}"'.encode())
    whole = mend_surrogates(piece)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "WINDOW", window)
        assert mend_surrogates(piece) == whole


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"", 400, r"it is empty \(byte 0\); send an object with query and documents"),
        ('{"é": tru}'.encode(), 400, r"\(byte 7\)"),
        (b'{"query": "\xff"}', 400, r"UTF-8 \(byte 11\)"),
        (b"[]", 422, "not a list"),
        (b"null", 422, "not null"),
        (b'"text"', 422, 'not "text"'),
        (b"7", 422, "not 7"),
        (b"true", 422, "not true"),
        (b'{"a": NaN}', 400, "not JSON"),
    ],
)
def test_bad_bodies(body: bytes, status: int, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as caught:
        parse(bytearray(body), LIMITS)
    assert caught.value.status == status


@pytest.mark.parametrize("large", [False, True])
def test_large_and_small_bodies_read_alike(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    monkeypatch.setattr(parsing, "PIECEWISE_FROM", 0 if large else 1 << 40)
    body = rb'{"query": "\ud800 q", "documents": ["a", {"text": "b \udc00"}, "\ud83d\ude00"], "top_n": 1}'
    expected = {"query": "\ufffd q", "documents": ["a", {"text": "b \ufffd"}, "😀"], "top_n": 1}
    assert parse(bytearray(body), LIMITS) == expected
    assert parse(bytearray(b"\xef\xbb\xbf" + body), LIMITS) == expected
    with pytest.raises(RequestError, match=r"byte 16\)"):
        parse(bytearray(b'{"documents": ["\\x"]}'), LIMITS)


def request(chunks: list[bytes], **headers: str) -> tuple[Request, Iterator[bytes]]:
    """A request that arrives in chunks, and what of it has not been asked for."""
    left = iter(chunks)

    async def receive() -> Message:
        assert left.__length_hint__(), "nothing more was going to come: a server would wait here for the client to go"
        return {"type": "http.request", "body": next(left), "more_body": bool(left.__length_hint__())}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive), left


async def head_and_body(arriving: Request) -> bytearray:
    await check_head(arriving, LIMITS)
    return await read_body(arriving, LIMITS, int)


def read(*chunks: bytes, **headers: str) -> tuple[Any, int]:
    """The body or the error, and how many chunks were left unread."""
    arriving, left = request(list(chunks), **headers)
    try:
        outcome: Any = asyncio.run(head_and_body(arriving))
    except RequestError as error:
        outcome = error
    return outcome, len(list(left))


@pytest.mark.parametrize(
    ("chunks", "headers", "left"),
    [
        ([b"x" * 600] * 2, {"content_length": "1200"}, 0),
        ([b"x" * 600] * 2, {"content_length": "1200", "expect": "100-continue"}, 2),
        ([b"x" * 600] * 2, {"content_length": "0" * 5000 + "1200"}, 0),
        ([b"x" * 300] * 6, {}, 0),
        ([b"x" * 300] * 6, {"content_encoding": " "}, 0),
        ([b"x" * 300] * 100, {}, 82),
    ],
    ids=["declared", "a client that asks first sends nothing", "declared at length", "undeclared", "in no encoding", "endless"],
)
def test_a_body_over_the_limit_is_refused_and_what_is_thrown_away_is_bounded(
    chunks: list[bytes], headers: dict[str, str], left: int
) -> None:
    error, unread = read(*chunks, **headers)
    assert (error.status, unread) == (413, left)
    assert "1000 bytes" in error.message


def test_a_body_that_is_refused_and_then_comes_too_slowly_is_told_why_it_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "DISCARD_SECONDS", 0.2)
    arriving: Iterator[Message] = iter([{"type": "http.request", "body": b"x" * 1200, "more_body": True}])

    async def receive() -> Message:
        return next(arriving, None) or await asyncio.Future[Message]()

    settings = LIMITS.model_copy(update={"body_seconds": 0.05})
    with pytest.raises(RequestError, match="larger than the limit of 1000 bytes"):
        asyncio.run(read_body(Request({"type": "http", "method": "POST", "headers": []}, receive), settings, int))


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip, zstd"])  # layers multiply what a body unpacks to
def test_other_encodings_are_not_known(encoding: str) -> None:
    error, _ = read(b"x", content_encoding=encoding)
    assert (error.status, error.problem) == (415, f"content-encoding {encoding!r} is not supported: send gzip, zstd or plain JSON")


@pytest.mark.parametrize("text", ["river", "[{" * 50_000])
def test_a_small_body_of_many_lists_is_refused_undecoded_and_brackets_in_a_text_are_not(text: str) -> None:
    """Decoded at once, its 600,000 lists held the interpreter lock for 0.3 s."""
    lists = b"[]," * 600_000 + b"[]"
    with pytest.raises(RequestError, match="there are too many members, lists and strings") as caught:
        parse(bytearray(b'{"query": "q", "documents": ["a"], "x": [' + lists + b"]}"), Limits())
    assert caught.value.status == 422
    with pytest.raises(RequestError, match="there are too many members, lists and strings"):
        parse_line(bytearray(b'{"id": "a", "text": [' + lists + b"]}"), Limits())
    request = {"query": "q", "documents": [{"id": 1, "text": text}, text]}
    assert parse(bytearray(orjson.dumps(request)), Limits()) == request
    assert parse_line(bytearray(orjson.dumps({"id": 1, "text": text})), Limits()) == {"id": 1, "text": text}


@pytest.mark.parametrize("digits", [4000, 1_000_000])
@pytest.mark.parametrize("depth", [0, 100_000])
def test_what_json_parsers_stumble_over_is_one_line(digits: int, depth: int) -> None:
    """Numbers of a million digits, and lists in lists in lists."""
    body = b'{"query": "q", "top_n": ' + b"[" * depth + b"9" * digits + b"]" * depth + b"}"
    with pytest.raises(RequestError, match="not JSON") as caught:
        parse(bytearray(body), Limits())
    assert caught.value.status == 400
    assert len(caught.value.message) < 200


def test_the_last_of_two_members_of_one_name_counts() -> None:
    assert parse(bytearray(b'{"query": "a", "query": "b"}'), Limits()) == {"query": "b"}
