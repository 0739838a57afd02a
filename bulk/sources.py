"""Sources of a scorer's documents: prepared in an earlier stage and found by number, or prepared from the texts in a list."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

import pyarrow as pa

from bulk.errors import BulkError
from bulk.tables import PreparedTable, map_table
from bulk.work import Layout
from keyblock.meaning import Understanding
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument

OPEN_SHARDS = 256  # mapped at once: each is an open file


Documents = tuple[Sequence[PreparedDocument], Sequence[str]]
"""The documents of a record batch of lists, list after list: prepared, and their texts ("" for each if nobody wants them)."""
Source = Callable[[pa.StructArray, bool], Documents]
"""Provides the documents of a column, which holds their texts or their numbers, and their texts where that is said."""


def understanding_of(pipeline: Pipeline) -> Understanding:
    """What understands documents. Raises BulkError if the bundle has no sentence encoder for it."""
    if pipeline.understanding is None:
        raise BulkError("--understand needs a bundle with a sentence encoder for stored documents: see keyblock-encoder --meaning")
    return pipeline.understanding


def prepared(pipeline: Pipeline, texts: Sequence[str], titles: Sequence[str], *, understand: bool) -> list[PreparedDocument]:
    """The documents, understood if that is asked. Raises BulkError as `understanding_of`."""
    made = pipeline.prepare_documents(texts, titles)
    return [understanding_of(pipeline).read(one) for one in made] if understand else made


def text_source(pipeline: Pipeline, *, understand: bool = False) -> Source:
    """Prepares documents of `bulk.tables.TEXT_DOCUMENT`; each distinct document of a record batch once."""

    def read(column: pa.StructArray, texts: bool) -> Documents:
        document_texts = [text or "" for text in column.field("text").to_pylist()]
        keys = list(zip(document_texts, (title or "" for title in column.field("title").to_pylist()), strict=True))
        distinct = list(dict.fromkeys(keys))
        made = prepared(pipeline, [text for text, _ in distinct], [title for _, title in distinct], understand=understand)
        known = dict(zip(distinct, made, strict=True))
        return [known[key] for key in keys], document_texts if texts else [""] * len(keys)

    return read


def stored_source(layout: Layout, counts: Sequence[int]) -> Source:
    """Maps documents of `bulk.tables.STORED_DOCUMENT` that the job's stage `Prepare` wrote, so many in each shard."""
    ends = list(accumulate(counts))
    starts = [0, *ends]
    tables = lru_cache(OPEN_SHARDS)(lambda shard: PreparedTable(map_table(layout.prepared(shard))))
    texts_of = lru_cache(OPEN_SHARDS)(lambda shard: map_table(layout.documents(shard)).column("text"))

    def read(column: pa.StructArray, texts: bool) -> Documents:
        numbers = column.field("number").to_pylist()
        places = [(shard, number - starts[shard]) for number in numbers for shard in (bisect_right(ends, number),)]
        found = [tables(shard)[row] for shard, row in places]
        return found, [texts_of(shard)[row].as_py() for shard, row in places] if texts else [""] * len(places)

    return read
