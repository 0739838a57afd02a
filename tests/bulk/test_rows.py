"""Files row by row; damage is one line."""

import gzip
from pathlib import Path

import pytest

from bulk.errors import BulkError
from bulk.rows import Row, read_lines, read_rows


def test_blank_lines_are_passed_over_and_places_are_the_editors(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n', encoding="utf-8")
    assert list(read_rows(path)) == [Row(f"{path}, line 1", {"a": 1}), Row(f"{path}, line 3", {"a": 2})]


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n', encoding="utf-8")
    with pytest.raises(BulkError, match=r"line 2: is not JSON .*: write an object a line"):
        list(read_rows(path))


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.parquet", "rows.jsonl"])
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000)[:-20])
    with pytest.raises(BulkError, match=rf"{name}: .*copy it again"):
        list(read_rows(path))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(BulkError, match="cannot be read: No such file"):
            list(read_rows(tmp_path / name))
    with pytest.raises(BulkError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))
