from datetime import timedelta
from typing import Any

import httpx
import pytest

from benchmarks.soak import GROWTH, Known, Tally, check_hurried, check_malformed, check_scores, check_stored, report

KNOWN = Known(b"{}", {0: 0.25, 1: 0.75}, 100, b"", b"{}")


def response(status: int = 200, results: Any = None, degraded: bool = False, total: float = 5.0, **headers: str) -> httpx.Response:
    body = {"results": results, "meta": {"degraded": degraded, "timings_ms": {"total": total}}}
    made = httpx.Response(status, json=body, headers=headers)
    made.elapsed = timedelta(milliseconds=7)
    return made


def ranked(*scores: float, **by: str) -> list[dict[str, Any]]:
    """Results in this order, document 1 first; `by` is scored_by of document 0."""
    return [{"index": 1, "relevance_score": scores[0]}, {"index": 0, "relevance_score": scores[1], **by}]


def test_scores_are_held_to_the_idle_services() -> None:
    tally = Tally(resident=[1])
    check_scores(response(results=ranked(0.75, 0.25)), "small", KNOWN, tally)
    assert (tally.wrong, tally.outcomes["small answered"], tally.milliseconds["small"]) == ([], 1, [5.0])
    check_scores(response(results=ranked(0.75, 0.2502)), "small", KNOWN, tally)
    check_scores(response(results=ranked(0.75, 0.25)[:1]), "small", KNOWN, tally)
    check_scores(response(results=ranked(0.75, 0.25), degraded=True), "small", KNOWN, tally)
    check_scores(response(status=500), "small", KNOWN, tally)
    assert len(tally.wrong) == 4
    assert report(tally) == 1


def test_a_refusal_says_when_to_come_back() -> None:
    tally = Tally()
    check_scores(response(status=429, **{"retry-after": "2"}), "huge", KNOWN, tally)
    assert (tally.wrong, tally.outcomes["huge refused"], tally.milliseconds["refused"]) == ([], 1, [7.0])
    check_malformed(response(status=429), tally)
    assert tally.wrong == ["malformed: 429 without Retry-After"]


def test_malformed_requests_must_get_an_error() -> None:
    tally = Tally()
    for status in (400, 422):
        check_malformed(response(status=status), tally)
    assert tally.wrong == []
    check_malformed(response(status=200), tally)
    assert len(tally.wrong) == 1


def test_the_hurried_are_whole_and_in_order() -> None:
    tally = Tally()
    check_hurried(response(results=ranked(0.7, 0.2, scored_by="selector"), degraded=True, total=101.0), KNOWN, 100, tally)
    assert (tally.wrong, tally.outcomes["hurried degraded"]) == ([], 1)
    assert tally.milliseconds["hurried: after the deadline"] == [1.0]
    check_hurried(response(results=ranked(0.2, 0.7)), KNOWN, 100, tally)
    check_hurried(response(results=list(reversed(ranked(0.2, 0.2, scored_by="order")))), KNOWN, 100, tally)
    assert len(tally.wrong) == 2


@pytest.mark.parametrize(
    ("late", "slow", "resident", "problem"),
    [
        ([-5.0] * 99, [1.0], [100, 100, 104], None),
        ([80.0], [1.0], [100], "after its deadline is 80 ms"),
        ([-5.0], [25.0], [100], "refused is 25 ms"),
        ([-5.0], [1.0], [100, 100, 106], "memory grew to 1.060"),
    ],
)
def test_the_report_judges(
    late: list[float], slow: list[float], resident: list[int], problem: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally(resident=resident)
    tally.milliseconds["hurried: after the deadline"], tally.milliseconds["refused"] = late, slow
    assert report(tally) == (0 if problem is None else 1)
    printed = capsys.readouterr().out
    assert (problem or "all held") in printed
    assert GROWTH > 1


def test_what_is_stored_is_stored_whole() -> None:
    tally = Tally()
    check_stored(httpx.Response(200, json={"stored": 2}), KNOWN, tally)
    assert (tally.wrong, tally.outcomes["stored again"]) == ([], 1)
    check_stored(httpx.Response(200, json={"stored": 1}), KNOWN, tally)
    check_stored(httpx.Response(507, json={"message": "full"}), KNOWN, tally)
    assert len(tally.wrong) == 2
