"""How far a stage is."""

import re

import pytest

from bulk.progress import Bar


def test_without_a_terminal_each_tenth_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("score", "pairs", 1000, done=450) as bar:
        for _ in range(11):
            bar.add(50)
        bar.note("a worker died")
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"[\d,.]+/s, [\d,]+ s left", "RATE", line) for line in lines] == [
        *(f"score: {done} of 1,000 pairs, RATE" for done in (500, 600, 700, 800, 900)),
        "score: 1,000 of 1,000 pairs, RATE",
        "a worker died",
    ]


def test_what_has_no_end_is_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("take in", "pairs", None) as bar:
        bar.add(10)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar_with_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with Bar("score", "pairs", 10) as bar:
        bar.add(2)
        bar.add(8)
    shown = capsys.readouterr().err
    assert "10 of 10 pairs" in shown
    assert re.search(r"[\d,.]+/s", shown)
    assert "0:00:00" in shown
