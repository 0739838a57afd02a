"""Smaller and coarser models beside the embedded one: turns by a clock that is told, and the table."""

import itertools

import pytest

from benchmarks import smaller
from benchmarks.adaptive import MEASURES
from training.collections.collection import Collection
from training.evaluation.evaluate import Evaluation


class Told:
    """A session that takes as many seconds as it is told, by a clock that it moves."""

    now = 0.0

    def __init__(self, *seconds: float) -> None:
        self.seconds = itertools.chain(seconds, itertools.repeat(seconds[-1]))

    def score(self, *_: object) -> None:
        Told.now += next(self.seconds)


def test_turns_are_compared_within_a_round() -> None:
    """The first round, where both are slow, counts nothing: 6.4 s of 32 sequences are 200 ms each, and twice as fast as 12.8."""
    rows = smaller.in_turns([("whole", Told(99, 12.8)), ("half", Told(77, 6.4))], 3, lambda: Told.now)  # type: ignore[list-item]
    assert rows == [["whole", "400.00", "1.00"], ["half", "200.00", "2.00"]]


def test_the_table_says_what_differs() -> None:
    """Differences .1, .2, .1 and .2: mean .15, deviation .0577, so t is 5.2 with 3 degrees of freedom, and p .014."""
    values = [dict(zip("abcd", of, strict=True)) for of in ([0.5, 0.5, 0.5, 0.5], [0.6, 0.7, 0.6, 0.7])]
    first, own = (
        Evaluation(f"qmsum, dev|{name}", {}, dict.fromkeys(MEASURES, of)) for name, of in zip(("six", "four"), values, strict=True)
    )
    assert smaller.row(first, first) == ["qmsum, dev", "4", "six", "0.5000", "", "0.5000", ""]
    assert smaller.row(own, first) == ["qmsum, dev", "4", "four", "+0.1500", "0.014", "+0.1500", "0.014"]


def test_the_best_of_the_first_stage_are_ordered_by_the_second(flood: Collection) -> None:
    """Of four the student's best two trade places; the teacher would put `d` first, but is not asked about it."""
    asked = {measure: {"q": 0.0} for measure in MEASURES}
    own = Evaluation("own", {"q": {"b": 4.0, "a": 3.0, "c": 2.0, "d": 1.0}}, asked)
    first = Evaluation("first", {"q": {"d": 9.0, "a": 5.0, "b": 1.0, "c": 0.5}}, asked)
    found = smaller.two_stages(own, first, flood, 0.5)
    assert list(found.run["q"]) == ["a", "b", "c", "d"]
    assert found.name == "own, best 50% by the first"
    assert found.values["RR@10"] == {"q": 1.0}, "the relevant one is a"


def test_a_system_is_a_bundle_in_an_arithmetic() -> None:
    options = smaller.parser().parse_args(["bundles/mine:int8-static", "--queries", "5"])
    assert (options.systems, options.queries, options.speed) == (["bundles/mine:int8-static"], 5, False)
    with pytest.raises(SystemExit):
        smaller.parser().parse_args(["--collections", "nowhere"])
