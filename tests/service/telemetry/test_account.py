from typing import Any

import pytest
from starlette.requests import Request

from service.telemetry.account import account_of, open_account


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


def test_a_request_has_one_account() -> None:
    request_scope = scope(b"a")
    account = open_account(request_scope)
    assert account_of(Request(request_scope)) is account
    alone = Request(scope())
    assert account_of(alone) is account_of(alone)


def test_a_path_forges_no_line_and_no_long_one() -> None:
    asked = scope(path="/documents/a\nb", raw_path=b"/documents/a%0Ab" + b"x" * 5000)
    logged = open_account(asked).fields(asked)
    assert logged["path"].startswith("/documents/a%0Abxx")
    assert len(logged["path"]) == 200


def test_unknown_fields_are_not_logged() -> None:
    asked = scope(client=("10.0.0.7", 1234))
    logged = open_account(asked).fields(asked)
    assert logged.pop("duration_ms") >= 0
    assert logged == {"method": "GET", "path": "/info", "status": 500, "client": "10.0.0.7"}
