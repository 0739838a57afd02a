import pytest

from service.pace import Pace


def test_nothing_is_known_at_first() -> None:
    assert Pace().estimate(100) == 0


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
