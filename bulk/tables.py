"""Arrow files: written whole, read without a copy."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bulk.files import whole_file


def write_table(path: Path, columns: Mapping[str, Iterable[Any]], schema: pa.Schema) -> None:
    """Write one record batch in Arrow's file format, uncompressed, so that it can be mapped into memory."""
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    with whole_file(path) as partial, pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def map_table(path: Path) -> pa.RecordBatch:
    """Map a file that `write_table` wrote. The columns are the file's pages."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0)
