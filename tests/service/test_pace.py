import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.pace import Pace, slices


def test_worked_example() -> None:
    pace = Pace()
    pace.measured(10, 1.0)
    assert pace.seconds == pytest.approx(0.1)
    pace.measured(1, 1.0)  # 0.9 * 10 + 1 units, 0.9 * 1 + 1 seconds
    assert pace.estimate(10) == pytest.approx(1.9)


def test_recent_work_counts_most_and_nothing_is_no_work() -> None:
    pace = Pace()
    pace.measured(0, 0.5)
    assert pace.seconds == 0
    pace.measured(1, 2.0)
    pace.measured(0, 0.5)
    assert pace.seconds == 2
    for seconds in (1.0, 5.0):
        for _ in range(100):
            pace.measured(10, seconds)
        assert pace.estimate(10) == pytest.approx(seconds, rel=1e-3)


def test_before_the_first_measurement_the_estimate_is_the_careful_one() -> None:
    pace = Pace(0.5)
    assert (pace.estimate(4), pace.seconds) == (2.0, 0.0)
    pace.measured(10, 1.0)
    assert pace.estimate(4) == pytest.approx(0.4)


def test_by_hand() -> None:
    assert list(slices([], 4, 10)) == []
    assert list(slices([1] * 9, 4, 10)) == [range(4), range(4, 8), range(8, 9)]
    assert list(slices([5, 5, 1, 45, 1], 4, 10)) == [range(2), range(2, 3), range(3, 4), range(4, 5)]


@given(st.lists(st.integers(0, 20), max_size=200), st.integers(1, 40), st.integers(0, 30))
def test_slices_cover_everything_once_within_their_bounds(sizes: list[int], most: int, most_together: int) -> None:
    cut = list(slices(sizes, most, most_together))
    assert [number for numbers in cut for number in numbers] == list(range(len(sizes)))
    for numbers in cut:
        assert 1 <= len(numbers) <= most
        assert len(numbers) == 1 or sum(sizes[n] for n in numbers) <= most_together
    for numbers in cut[:-1]:
        assert len(numbers) == most or sum(sizes[n] for n in [*numbers, numbers.stop]) > most_together
