"""Arrow schemas of a job's tables: lists, documents, prepared documents, rankings."""

import pyarrow as pa

TEXT_DOCUMENT = pa.struct(
    [("docid", pa.string()), ("title", pa.string()), ("text", pa.string()), pa.field("score", pa.float64(), nullable=True)]
)
"""A document of a list that holds its text; `score` is from the first stage, or null."""
STORED_DOCUMENT = pa.struct([("docid", pa.string()), ("number", pa.int64()), pa.field("score", pa.float64(), nullable=True)])
"""A document of a list; its number finds its text and preparation."""


def lists_schema(document: pa.DataType) -> pa.Schema:
    """A row is a query with its candidates, in first-stage order."""
    return pa.schema([("qid", pa.string()), ("query", pa.string()), ("documents", pa.list_(document))])


LISTS, STORED_LISTS = lists_schema(TEXT_DOCUMENT), lists_schema(STORED_DOCUMENT)
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
