"""Tables worked by hand: a difference of 1 and 0.5 in two queries is t = 3 with one degree of freedom."""

import math

import pytest

from training.evaluate.tables import table

P = 1 - 2 / math.pi * math.atan(3)
GOOD, BAD = {"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize(("correction", "times"), [("holm", 2), ("bonferroni", 2), ("none", 1)])
def test_the_table_by_hand(correction: str, times: int) -> None:
    systems = {"new": {"RR@10": GOOD}, "old": {"RR@10": BAD}, "same": {"RR@10": GOOD}}
    assert table(systems, "new", correction).splitlines() == [
        "| system | RR@10 | p |",
        "| --- | --- | --- |",
        "| new | 0.7500 |  |",
        f"| old | 0.0000 | {times * P:.2g} |",
        "| same | 0.7500 | 1 |",
    ]


def test_a_table_of_one_query_has_no_p_values() -> None:
    systems = {"new": {"RR@10": {"a": 1.0}}, "old": {"RR@10": {"a": 0.5}}}
    assert table(systems, "new").splitlines()[-1] == "| old | 0.5000 |  |"
