"""The command line."""

import pytest

from benchmarks.simulation import __main__
from benchmarks.simulation.invariants import Checks, ViolationError


def test_it_counts_what_came_and_what_broke(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(__main__.parser().parse_args(["--requests", "60", "--seed", "5"])) == 0
    said = capsys.readouterr().out
    assert "60 requests of 1 seeds from 5" in said
    assert "all invariants hold" in said


def test_a_violation_is_the_command_that_repeats_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise ViolationError("this does not hold")

    monkeypatch.setattr(Checks, "at_the_end", never)
    assert __main__.main(__main__.parser().parse_args(["--requests", "60", "--seed", "5"])) == 1
    assert "this does not hold\nagain: python -m benchmarks.simulation --seed 5 --requests 60" in capsys.readouterr().out
