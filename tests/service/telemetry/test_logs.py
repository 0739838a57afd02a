"""Lines of the log, and the account of a request that they are made of."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from service.settings import LogFormat
from service.telemetry.account import CURRENT_ID, open_account
from service.telemetry.logs import formatter, with_request_id


@pytest.fixture
def request_id() -> Iterator[str]:
    before = CURRENT_ID.set("a1")
    yield "a1"
    CURRENT_ID.reset(before)


def line(kind: LogFormat, message: str = "all is well", **extra: object) -> str:
    record = logging.getLogger("service.x").makeRecord("service.x", logging.INFO, __file__, 1, message, (), None, extra=extra)
    assert with_request_id(record)
    return formatter(kind).format(record)


def test_json_is_an_object_a_line(request_id: str) -> None:
    shown = line(LogFormat.JSON, "two\nlines", stages_ms={"parse": 0.1}, color_message="of uvicorn")
    assert "\n" not in shown
    entry = json.loads(shown)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "INFO",
        "logger": "service.x",
        "message": "two\nlines",
        "stages_ms": {"parse": 0.1},
        "request_id": request_id,
    }


def test_text_says_the_same_behind_its_message(request_id: str) -> None:
    shown = line(LogFormat.TEXT, documents=7, key="search", query='a "quoted"\nquery', stages_ms={"parse": 0.1})
    assert shown.endswith(
        r'INFO service.x: all is well documents=7 key=search query="a \"quoted\"\nquery" stages_ms={"parse":0.1} request_id=a1'
    )


@pytest.mark.parametrize("kind", LogFormat)
def test_outside_of_requests_there_is_no_id(kind: LogFormat) -> None:
    assert "request_id" not in line(kind)


def scope(*ids: bytes, **more: object) -> dict[str, Any]:
    headers = [(b"x-request-id", identity) for identity in ids]
    return {"type": "http", "method": "GET", "path": "/info", "raw_path": b"/info", "headers": headers, **more}


@pytest.mark.parametrize("sent", [b"a", b"7f-3b:1/2", b"x" * 128, b"dGVzdA==", b"1-67891233-abcdef012345678912345678"])
def test_an_id_is_taken(sent: bytes) -> None:
    assert open_account(scope(sent)).request_id == sent.decode()


@pytest.mark.parametrize(
    "sent", [b"", b"x" * 129, b"a b", b"a\r\nset-cookie: b", b"a\n", b'"', b"\xff", "\u0661".encode(), b"<script>"]
)
def test_an_unsafe_request_id_is_replaced(sent: bytes) -> None:
    made = open_account(scope(sent)).request_id
    assert len(made) == 32
    assert made != open_account(scope(sent)).request_id


def test_a_path_forges_no_line_and_no_long_one() -> None:
    asked = scope(path="/documents/a\nb", raw_path=b"/documents/a%0Ab" + b"x" * 5000)
    logged = open_account(asked).fields(asked)
    assert logged["path"].startswith("/documents/a%0Abxx")
    assert len(logged["path"]) == 200
