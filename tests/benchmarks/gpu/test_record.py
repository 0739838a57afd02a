"""A record is written whole, read back, and told from what is none."""

from pathlib import Path

import pytest

from benchmarks.gpu.record import State, new_record, read, read_all, write
from benchmarks.performance.record import RecordError
from tests.benchmarks.gpu.conftest import SETUP


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = new_record("parity", SETUP, State.MEASURED, "")
    record["rows"].append({"table": "parity", "way": "CPU fp32"})
    write(tmp_path / "records", record)
    assert read(tmp_path / "records", "parity") == record
    assert list(read_all(tmp_path / "records", ["device", "parity"])) == ["parity"]
    assert record["run"]["command"] == "python -m benchmarks.gpu --provider cpu"


@pytest.mark.parametrize("content", ["", "[]", '{"part": "other", "state": "failed", "rows": []}', '{"part": "parity"}'])
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "parity.json").write_text(content)
    with pytest.raises(RecordError, match="no record of a part, remove it"):
        read(tmp_path, "parity")
