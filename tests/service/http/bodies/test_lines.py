import gzip
import json
from itertools import pairwise
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from keyblock.wire import DocumentLine
from service.errors import RequestError
from service.http.bodies import lines
from service.http.bodies.lines import LineReader, NewDocument, Report, read_line
from service.settings import Limits

LIMITS = Limits(max_document_chars=50, max_body_bytes=300)
TEXT = st.text(st.characters(codec=None), max_size=60)
OBJECTS = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=5) | st.integers(0, 99), "text": TEXT}, optional={"title": TEXT}
)
SCALARS = st.sampled_from([None, True, 0, 7, 1.5, -1, "", "text", [], {}])
ANY_OBJECT = st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "text", "title", "expires_in", "other"), SCALARS))
LINES = st.lists(
    OBJECTS.map(lambda value: json.dumps(value).encode()) | st.sampled_from([b"", b"  ", b"{", b"7", b"\xff", b"x" * 400]),
    max_size=12,
)


def read(body: bytes, cuts: list[int], encoding: str = "identity") -> tuple[list[NewDocument], Report]:
    """All documents of a body that arrives in pieces."""
    report = Report()
    reader = LineReader(encoding, LIMITS, report)
    found: list[NewDocument] = []
    bounds = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in pairwise(bounds):
        for batch in reader.feed(body[start:end]):
            assert len(batch) <= lines.BATCH_DOCUMENTS
            found += batch
    return found + reader.end(), report


@given(LINES, st.lists(st.integers(0, 5000), max_size=6), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_how_a_body_arrives_makes_no_difference(body: list[bytes], cuts: list[int], end: bytes, ended: bool) -> None:
    whole = end.join(body) + (end if ended else b"")
    found, report = read(whole, cuts)
    alone = [read(line, []) for line in body]
    assert [document._replace(line=0) for document in found] == [d._replace(line=0) for got, _ in alone for d in got]
    assert [wrong.line for wrong in report.wrong] == [n for n, (_, outcome) in enumerate(alone, 1) if outcome.failed]
    assert report.failed == sum(outcome.failed for _, outcome in alone)
    packed, _ = read(gzip.compress(whole), cuts, "gzip")
    assert packed == found


@given(ANY_OBJECT | SCALARS)
def test_accepts_what_the_model_declares(value: Any) -> None:
    try:
        declared = TypeAdapter(DocumentLine).validate_python(value, strict=True)
    except ValidationError:
        declared = None
    if declared is None or declared.id == "":  # the model does not say how long an id is
        with pytest.raises(RequestError):
            read_line(value, 1, LIMITS)
        return
    expected = NewDocument(1, str(declared.id), declared.text, declared.title or "", declared.expires_in)
    assert read_line(value, 1, LIMITS) == expected


@pytest.mark.parametrize("line", [b"", b"7", b"x" * 301])
def test_what_is_something_else_is_not_read_to_its_end(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_USELESS", 50)
    with pytest.raises(RequestError, match="more than 50 lines up to line 51 are wrong or blank: are these JSON lines"):
        read((line + b"\n") * 100, [])
    assert read((line + b"\n") * 50, [])[0] == []


def test_a_reader_pauses_while_it_unpacks() -> None:
    reader = LineReader("zstd", Limits(), Report())
    assert len(list(reader.feed(zstandard.compress(b" " * (20 << 20))))) >= 2


@pytest.mark.parametrize("line", [b'{"id": "a", "text": "b"}\n', b" \n"])
def test_what_a_body_unpacks_to_is_bounded_whatever_it_says(line: bytes) -> None:
    reader = LineReader("zstd", LIMITS, Report())
    body = zstandard.compress(line * (10_000_000 // len(line)))
    with pytest.raises(RequestError, match="unpacks to more than 250 times its size") as raised:
        for _ in reader.feed(body):
            pass
    assert raised.value.status == 413


def test_long_lines_in_vain_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_USELESS_BYTES", 1000)
    with pytest.raises(RequestError, match="more than 1000 bytes of lines up to line 6 are wrong"):
        read((b"[" * 200 + b"\n") * 10, [])
