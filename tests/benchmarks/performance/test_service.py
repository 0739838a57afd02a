"""Which answers a measurement takes, and a service that does not start."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.performance import service
from benchmarks.performance.service import Service, ServiceError, last_line, make_body, read_answer
from benchmarks.performance.texts import Request

REQUEST = Request("a query", ["one", "two", "three", "four"], 2)


def answer(order: list[int], *, degraded: bool = False, warnings: tuple[str, ...] = ()) -> bytes:
    results = [{"index": index, "relevance_score": 1.0 - place / 10} for place, index in enumerate(order)]
    meta: dict[str, Any] = {"degraded": degraded, "warnings": list(warnings), "timings_ms": {"model": 250.0, "total": 500.0}}
    return json.dumps({"results": results, "meta": meta, "usage": {"total_tokens": 400}}).encode()


def test_an_answer_in_the_order_given() -> None:
    read = read_answer(200, answer([2, 0, 1, 3]), 1.5, REQUEST)
    assert read.scores == [0.9, 0.8, 1.0, 0.7]
    assert read.stages == {"model": 0.25, "total": 0.5}
    assert (read.seconds, read.tokens) == (1.5, 400)


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (503, b"overloaded", "answered 503: overloaded"),
        (200, answer([2, 0, 1, 3], degraded=True), "degraded"),
        (200, answer([2, 0, 1, 3], warnings=("lowered to 256",)), "lowered to 256"),
        (200, answer([3, 0, 1, 2]), r"document 2 says the query's words, and \[3, 0, 1\] are ranked best"),
    ],
)
def test_an_answer_that_is_no_measurement(status: int, content: bytes, message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        read_answer(status, content, 1.0, REQUEST)


def test_a_body_asks_for_a_budget_or_leaves_it_to_the_bundle() -> None:
    asked = {"query": REQUEST.query, "documents": REQUEST.documents, "top_n": len(REQUEST.documents)}  # the model reads all
    assert json.loads(make_body(REQUEST)) == asked
    assert json.loads(make_body(REQUEST, 256))["max_tokens_per_doc"] == 256


def test_a_service_that_does_not_start_says_why(tmp_path: Path) -> None:
    if not service.COMMAND.exists():
        pytest.skip("keyblock-serve is not installed beside this Python")
    with pytest.raises(ServiceError, match=r"keyblock-serve ended with 2: .*does not exist"):
        Service(1, tmp_path / "log", bundle=tmp_path / "none")


def test_the_last_line_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == "it said nothing"
    log.write_text("first\n  last \n\n", encoding="utf-8")
    assert last_line(log) == "last"
