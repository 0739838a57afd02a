"""What is measured when time is short, on a clock that the measuring moves."""

from collections.abc import Sequence

from benchmarks.gpu.plan import PARTS, Part, measure_all
from benchmarks.performance.record import cpu_name

A, B, C = (Part(name, name.upper(), minutes, ("json",)) for name, minutes in (("a", 2), ("b", 5), ("c", 1)))


class Bookkeeping:
    """A lab whose parts take as long as they are told to; it is a clock as well."""

    def __init__(self, takes: dict[str, float], done: Sequence[str] = (), tried: Sequence[str] = (), lacks: str = "") -> None:
        self._takes, self._done, self._tried, self._lacks = takes, done, tried, lacks
        self.now = 1000.0
        self.measured: list[tuple[str, float]] = []
        self.left_out: dict[str, str] = {}

    def done(self, part: Part) -> bool:
        return part.name in self._done

    def tried(self, part: Part) -> bool:
        return part.name in self._tried

    def missing(self, part: Part) -> Sequence[str]:
        return ["vllm"] if part.name == self._lacks else []

    def leave_out(self, part: Part, why: str) -> None:
        self.left_out[part.name] = why

    def measure(self, part: Part, seconds: float) -> None:
        self.measured.append((part.name, seconds))
        self.now += min(60 * self._takes[part.name], seconds)


def planned(lab: Bookkeeping, minutes: float) -> Bookkeeping:
    measure_all((A, B, C), minutes, lab, lambda: lab.now)
    return lab


def test_a_part_that_would_not_fit_is_left_out_for_one_that_does() -> None:
    """Six minutes: a takes two, so that b's five do not fit and c's one does; each may take half as long again as planned."""
    lab = planned(Bookkeeping({"a": 2, "c": 1}), 6)
    assert lab.measured == [("a", 180), ("c", 90)]
    assert lab.left_out == {"b": "it may take 5 minutes, and 4.0 were left"}


def test_a_part_that_hangs_is_ended_for_the_sake_of_the_others() -> None:
    lab = planned(Bookkeeping({"a": 60, "b": 60, "c": 1}), 9)
    assert lab.measured == [("a", 180), ("b", 360)]
    assert lab.left_out == {"c": "it may take 1 minutes, and 0.0 were left"}


def test_what_is_done_is_not_done_again_and_what_failed_comes_last() -> None:
    lab = planned(Bookkeeping({"a": 2, "c": 1}, done=["b"], tried=["a"]), 25)
    assert [name for name, _ in lab.measured] == ["c", "a"]


def test_a_part_without_its_packages_is_left_out() -> None:
    lab = planned(Bookkeeping({"b": 5, "c": 1}, lacks="a"), 25)
    assert lab.left_out == {"a": "it needs vllm, not installed there"}
    assert [name for name, _ in lab.measured] == ["b", "c"]


def test_all_parts_fit_into_25_minutes() -> None:
    assert sum(part.minutes for part in PARTS) <= 25
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert cpu_name(), "what a record of the CPU is told apart by"
