"""The Arrow tables of a job: lists, documents, prepared documents, rankings. Files are written whole, and mapped without a copy."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bulk.work import whole_file
from keyblock.prepared import PreparedDocument

DOCUMENT = pa.struct([("docid", pa.string()), ("number", pa.int64()), pa.field("score", pa.float64(), nullable=True)])
"""A document of a list: its number finds its text and preparation; `score` is from the first stage, or null."""
LISTS = pa.schema([("qid", pa.string()), ("query", pa.string()), ("documents", pa.list_(DOCUMENT))])
"""A row is a query with its candidates, in first-stage order."""
DOCUMENTS = pa.schema([("title", pa.string()), ("text", pa.string())])
"""Distinct documents, by their numbers."""
PREPARED = pa.schema(
    [
        ("token_ids", pa.list_(pa.int32())),
        ("bounds", pa.list_(pa.int32())),
        ("starts", pa.list_(pa.int32())),
        ("ends", pa.list_(pa.int32())),
        ("terms", pa.list_(pa.int64())),
        ("term_bounds", pa.list_(pa.int32())),
        ("title_ids", pa.list_(pa.int32())),
        ("vectors", pa.list_(pa.int8())),
        ("dimensions", pa.int32()),
    ]
)
"""A row is a `keyblock.prepared.PreparedDocument`. `bounds` and `vectors` are flat; `dimensions` is a vector's length, or -1."""
_PLACES = pa.list_(pa.struct([("start", pa.int32()), ("end", pa.int32()), ("score", pa.float64())]))


def rankings_schema(*, blocks: bool, spans: bool) -> pa.Schema:
    """A row is a document of a query, best first; `fused_score` is the score of a fusion with the first stage, or null."""
    fields = [
        ("qid", pa.string()),
        ("docid", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),
        ("scored_by", pa.string()),
        ("fused_score", pa.float64()),
    ]
    return pa.schema([*fields, *([("blocks", _PLACES)] if blocks else []), *([("spans", _PLACES)] if spans else [])])


def write_table(path: Path, columns: Mapping[str, Iterable[Any]], schema: pa.Schema) -> None:
    """Write one record batch in Arrow's file format, uncompressed, so that it can be mapped into memory."""
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    with whole_file(path) as partial, pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def map_table(path: Path) -> pa.RecordBatch:
    """Map a file that `write_table` wrote. The columns are the file's pages."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0)


_FLAT = ("token_ids", "starts", "ends", "terms", "term_bounds", "title_ids")  # bounds and vectors are tables


def columns_of(documents: Sequence[PreparedDocument]) -> dict[str, list[Any]]:
    """The documents as columns of `PREPARED`."""
    columns: dict[str, list[Any]] = {name: [getattr(one, name) for one in documents] for name in _FLAT}
    columns["bounds"] = [one.bounds.ravel() for one in documents]
    columns["vectors"] = [None if one.vectors is None else one.vectors.ravel() for one in documents]
    columns["dimensions"] = [-1 if one.vectors is None else one.vectors.shape[1] for one in documents]
    return columns


class PreparedTable:
    """The documents of a record batch of `PREPARED`; their arrays are the batch's pages."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def __getitem__(self, number: int) -> PreparedDocument:
        row = {name: self._batch.column(name)[number] for name in PREPARED.names}
        dimensions, vectors = row.pop("dimensions").as_py(), row.pop("vectors").values
        arrays = {name: value.values.to_numpy() for name, value in row.items()}
        arrays["bounds"] = arrays["bounds"].reshape(-1, 2)
        return PreparedDocument(**arrays, vectors=None if vectors is None else vectors.to_numpy().reshape(-1, dimensions))
