import time
from itertools import pairwise
from typing import Any

import pytest
from starlette.requests import Request

from service.call import DEFAULT_NAMESPACE
from service.keys.keys import read_keys
from service.telemetry.account import Stages, account_of, open_account
from service.telemetry.metrics import TABLE, Metrics
from tests.service.keyed import ALL


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


def test_without_keys_there_is_one_and_it_has_no_colon() -> None:
    request = Request({"type": "http", "method": "PUT", "headers": [(b"authorization", b"Bearer somebody")]})
    assert account_of(request).namespace == DEFAULT_NAMESPACE
    assert ":" not in DEFAULT_NAMESPACE


def test_the_namespace_is_the_keys_own_or_the_one_it_names() -> None:
    found = {}
    for name in ("alice", "bob", "reader"):
        request = Request({"type": "http", "method": "PUT", "headers": []})
        (account_of(request).key,) = read_keys(ALL[name].entry, "here")
        found[name] = account_of(request).namespace
    assert found == {"alice": "alice", "bob": "bob", "reader": "alice"}


def test_stages_are_timed_and_observed() -> None:
    metrics = Metrics().of("m")
    stages = Stages(metrics)
    stages.end("parse")
    stages.add("model", 0.25)
    time.sleep(0.26)
    stages.end("respond")
    timings = stages.milliseconds()
    assert list(timings) == ["parse", "model", "respond", "total"]
    assert timings["model"] == 250.0
    assert sum(timings.values()) - timings["total"] <= timings["total"] + 0.002
    assert timings["respond"] >= 10  # from where the model's time ended
    sums = [
        metrics.registry.get_sample_value(f"{TABLE['stages'].name}_sum", {"stage": stage, "model": "m"})
        for stage in ("parse", "model")
    ]
    assert sums[1] == 0.25
    assert sums[0] is not None
    assert abs(sums[0] * 1e3 - timings["parse"]) < 0.001


def test_stages_follow_each_other_and_make_a_server_timing_header() -> None:
    stages = Stages(Metrics().of("m"))
    stages.end("parse")
    stages.add("queue", 0.5)
    stages.add("model", 0.25)
    starts_and_ends = [(one.start, one.end) for one in stages.intervals]
    assert starts_and_ends[0][0] == stages.began
    assert all(end == start for (_, end), (start, _) in pairwise(starts_and_ends))
    parts = stages.server_timing().split(", ")
    assert parts[1:3] == ["queue;dur=500", "model;dur=250"]
    assert [part.split(";dur=")[0] for part in parts] == ["parse", "queue", "model", "total"]
