"""The command line."""

import subprocess
import sys

import pytest

from benchmarks.simulation import __main__
from benchmarks.simulation.invariants import Checks, ViolationError
from tests.conftest import ROOT


def test_it_counts_what_came_and_what_broke(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(__main__.parser().parse_args(["--requests", "60", "--seed", "5"])) == 0
    said = capsys.readouterr().out
    assert "60 requests of 1 seeds from 5" in said
    assert "all invariants hold" in said


def test_several_processes_count_as_one_does() -> None:
    def said(processes: int) -> list[str]:
        asked = ["--requests", "20", "--seed", "5", "--seeds", "2", "--processes", str(processes)]
        command = [sys.executable, "-m", "benchmarks.simulation", *asked]
        first, *counts = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        assert first.startswith("40 requests of 2 seeds from 5 in ")
        return counts

    assert said(1) == said(2)


def test_a_violation_is_the_command_that_repeats_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise ViolationError("this does not hold")

    monkeypatch.setattr(Checks, "at_the_end", never)
    assert __main__.main(__main__.parser().parse_args(["--requests", "60", "--seed", "5"])) == 1
    assert "this does not hold\nagain: python -m benchmarks.simulation --seed 5 --requests 60" in capsys.readouterr().out
