"""Verdicts and the comparison with what was recorded, from a record of round numbers."""

from copy import deepcopy
from typing import Any

import pytest

from benchmarks.performance.targets import TARGETS, Target, comparable, figures, regressions, verdicts

Record = dict[str, Any]


def values(record: Record) -> dict[str, float]:
    return {target.name: value for target, value in verdicts(record) if value is not None}


def test_every_target_has_its_figure(record: Record) -> None:
    found = list(values(record).values())
    before = [0.04 / 1.04, 0.002 / 1.002]
    assert found == pytest.approx([4.0, 8.0, 16.0, 16.0, *before, 1.0 * 100 / 25, 0.95, 1.1, 2.5, 1.25])


def test_a_bound_is_kept_or_missed_by_a_share_of_it(record: Record) -> None:
    verdict_of = {target.name: target.verdict(value) for target, value in verdicts(record) if value is not None}
    missed = {name: verdict for name, verdict in verdict_of.items() if verdict.startswith("**missed")}
    assert missed == {"memory after ten times the requests, over that before": "**missed** by 5%"}
    assert verdict_of["model time over the arithmetic limit"] == "passed; the aim is 3.00"
    assert verdict_of["throughput at 512 tokens, over the faster peer's"] == "passed"


def test_what_was_not_measured_has_no_figure(record: Record) -> None:
    assert [value for _, value in verdicts({**record, "parts": {}})] == [None] * len(TARGETS)
    record["parts"]["throughput"]["rows"] = [row for row in record["parts"]["throughput"]["rows"] if row["ours"]]
    assert "throughput at 512 tokens, over the faster peer's" not in values(record)
    assert not [name for name in figures(record) if name.startswith("512 tokens over")]


@pytest.mark.parametrize(("most", "bound", "met"), [(True, 2.0, False), (True, 3.0, True), (False, 3.0, True), (False, 4.0, False)])
def test_at_most_and_at_least(most: bool, bound: float, met: bool) -> None:
    assert Target("x", "start", bound, lambda _: 3.0, most=most).met(3.0) is met


def test_seconds_are_not_compared_and_each_peer_is(record: Record) -> None:
    assert "start to ready" not in figures(record)
    assert figures(record)["512 tokens over tuned"] == (2.0, False)


def test_worse_by_more_than_the_tolerance(record: Record) -> None:
    new = deepcopy(record)
    assert regressions(new, record, 0.15) == []
    mine = next(row for row in new["parts"]["throughput"]["rows"] if row["tokens"] == 512)
    mine["seconds"]["median"] *= 1.1
    assert regressions(new, record, 0.15) == []
    mine["seconds"]["median"] *= 1.2
    worse = regressions(new, record, 0.15)
    assert worse[0] == "throughput at 512 tokens, over the faster peer's: 3.030, recorded 4.000"
    assert len(worse) == 4  # and each of the three peers


def test_more_of_what_should_be_little_is_worse_and_less_is_not(record: Record) -> None:
    new = deepcopy(record)
    new["parts"]["length"]["seconds"]["20000"]["median"] = 4.0
    assert regressions(new, record, 0.15) == ["20,000 words a document, over 2,000: 2.000, recorded 1.250"]
    assert regressions(record, new, 0.15) == []


def test_parts_of_other_sizes_are_not_compared(record: Record) -> None:
    new = deepcopy(record)
    new["parts"]["length"]["seconds"]["20000"]["median"] = 4.0
    new["parts"]["length"]["run"]["sizes"] = "quick"
    assert regressions(new, record, 0.15) == []


def test_what_compares(record: Record) -> None:
    assert comparable(record, record) == ""
    assert comparable(record, {"machine": {}, "versions": {}, "parts": {}}) == "nothing is recorded yet"
    other = deepcopy(record)
    other["machine"]["cpu"] = "Another CPU"
    assert comparable(record, other) == "what is recorded was measured on another machine (Another CPU)"
    quick = deepcopy(record)
    for part in quick["parts"].values():
        part["run"]["sizes"] = "quick"
    assert comparable(quick, record) == "nothing of the same sizes and texts is recorded"
