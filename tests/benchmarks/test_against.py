"""A tree beside itself: both answer, each kind of request has its row, and nothing is left behind."""

import subprocess

import pytest

from benchmarks import against
from benchmarks.against import KINDS, ROOT, Kind


def worktrees() -> str:
    return subprocess.run(["git", "-C", str(ROOT), "worktree", "list"], check=True, capture_output=True, text=True).stdout


def test_both_are_asked_in_turns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(against, "KINDS", {"3 documents": Kind(3), "3, again": Kind(3, 3, again=True)})
    before = worktrees()
    against.main(["HEAD", "--rounds", "2", "--threads", "1", "--words", "40"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].strip("| ") for row in rows] == ["3 documents", "3, again"]
    assert all(row[1] == "2" and min(float(row[2]), float(row[3])) > 0 for row in rows)
    assert worktrees() == before


def test_a_commit_that_is_not_there() -> None:
    before = worktrees()
    with pytest.raises(subprocess.CalledProcessError), against.worktree("no-such-commit"):
        pass
    assert worktrees() == before


def test_what_is_measured_beside_the_cascade() -> None:
    """All of a request's documents are read where as many results are asked for, so that the cascade's share shows."""
    assert all(kind.top_n in (None, kind.documents) for kind in KINDS.values())
