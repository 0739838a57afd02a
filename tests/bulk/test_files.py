"""Files are there whole or not at all."""

from pathlib import Path

import pytest

from bulk.work import sweep, whole_file, write_once, write_whole


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with whole_file(path) as partial:
        partial.write_text("whole")
        assert not path.exists()
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "whole"


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half of it, and then \ud800")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.txt", "before")]


def test_what_a_kill_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.parquet.0123.partial").touch()
    (tmp_path / "a.parquet").touch()
    sweep(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_the_first_to_write_wins(tmp_path: Path) -> None:
    assert write_once(tmp_path / "a.txt", "mine") == "mine"
    assert write_once(tmp_path / "a.txt", "theirs") == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
