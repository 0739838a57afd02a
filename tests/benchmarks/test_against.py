"""A tree beside itself: both answer, each kind of request has its row, and nothing is left behind."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from benchmarks import against
from benchmarks.against import KINDS, ROOT, Kind


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trees are made in this test; others may make theirs meanwhile."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def trees(place: Path) -> list[str]:
    """That git knows of there."""
    listed = subprocess.run(["git", "-C", str(ROOT), "worktree", "list"], check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.startswith(str(place))]


def test_both_trees_are_measured_in_turns(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(against, "KINDS", {"3 documents": Kind(3), "3, again": Kind(3, 3, again=True)})
    against.main(["HEAD", "--rounds", "2", "--threads", "1", "--words", "40"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].strip("| ") for row in rows] == ["3 documents", "3, again"]
    assert all(row[1] == "2" and min(float(row[2]), float(row[3])) > 0 for row in rows)
    assert trees(place) == []


def test_a_tree_goes_when_it_is_measured(place: Path) -> None:
    with against.worktree("HEAD"):
        assert len(trees(place)) == 1
    assert trees(place) == []


def test_a_commit_that_is_not_there(place: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError), against.worktree("no-such-commit"):
        pass
    assert trees(place) == []


def test_what_is_measured_beside_the_cascade() -> None:
    """All of a request's documents are read where as many results are asked for, so that the cascade's share shows."""
    assert all(kind.top_n in (None, kind.documents) for kind in KINDS.values())
