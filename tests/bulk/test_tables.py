"""Arrow files on disk."""

from pathlib import Path

import pyarrow as pa

from bulk.tables import map_table, write_table


def test_what_is_written_is_mapped(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    before = pa.total_allocated_bytes()
    write_table(tmp_path / "t.arrow", {"b": ["x", None], "a": [1, 2]}, schema)
    batch = map_table(tmp_path / "t.arrow")
    assert batch.schema == schema
    assert batch.to_pydict() == {"a": [1, 2], "b": ["x", None]}
    assert pa.total_allocated_bytes() == before, "the columns are the file's own pages"
