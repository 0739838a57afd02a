"""Sources of a scorer's documents: prepared in an earlier stage and found by number, or prepared from the texts in a list."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from bulk.prepared import PreparedTable
from bulk.tables import map_table
from bulk.work import Layout
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument

OPEN_SHARDS = 256  # mapped at once: each is an open file
T = TypeVar("T")


class Documents(NamedTuple):
    """The documents of a record batch of lists, list after list.

    Attributes:
        prepared: the documents as the pipeline prepared them.
        texts: the documents' texts; "" for each if the caller wants no texts.
    """

    prepared: Sequence[PreparedDocument]
    texts: Sequence[str]


class Source(Protocol):
    """Provides documents to a scorer."""

    def read(self, column: pa.StructArray, *, texts: bool) -> Documents:
        """The documents of a column. The column holds their texts or their numbers, as the source needs."""


class TextSource:
    """Prepares documents of `bulk.schemas.TEXT_DOCUMENT`; each distinct document of a record batch once.

    Args:
        pipeline: prepares the documents.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def read(self, column: pa.StructArray, *, texts: bool) -> Documents:
        """See Source."""
        document_texts = [text or "" for text in column.field("text").to_pylist()]
        keys = list(zip(document_texts, (title or "" for title in column.field("title").to_pylist()), strict=True))
        distinct = list(dict.fromkeys(keys))
        made = self._pipeline.prepare_documents([text for text, _ in distinct], [title for _, title in distinct])
        known = dict(zip(distinct, made, strict=True))
        return Documents([known[key] for key in keys], document_texts if texts else [""] * len(keys))


class _Mapped(Generic[T]):
    """Shards by number; the most recently used ones stay open."""

    def __init__(self, open_shard: Callable[[int], T]) -> None:
        self._open_shard = open_shard
        self._shards: OrderedDict[int, T] = OrderedDict()

    def __getitem__(self, shard: int) -> T:
        if shard in self._shards:
            self._shards.move_to_end(shard)
        else:
            self._shards[shard] = self._open_shard(shard)
            if len(self._shards) > OPEN_SHARDS:
                self._shards.popitem(last=False)
        return self._shards[shard]


class StoredSource:
    """Maps documents of `bulk.schemas.STORED_DOCUMENT` that the job's stage `Prepare` wrote.

    Args:
        layout: the job's files.
        counts: documents in each shard.
    """

    def __init__(self, layout: Layout, counts: Sequence[int]) -> None:
        self._ends = list(accumulate(counts))
        self._starts = [0, *self._ends]
        self._prepared = _Mapped(lambda shard: PreparedTable(map_table(layout.prepared(shard))))
        self._texts = _Mapped(lambda shard: map_table(layout.documents(shard)).column("text"))

    def read(self, column: pa.StructArray, *, texts: bool) -> Documents:
        """See Source."""
        places = [self._place(number) for number in column.field("number").to_pylist()]
        prepared = [self._prepared[shard][row] for shard, row in places]
        return Documents(prepared, [self._texts[shard][row].as_py() for shard, row in places] if texts else [""] * len(places))

    def _place(self, number: int) -> tuple[int, int]:
        """A document's shard, and its row in the shard."""
        shard = bisect_right(self._ends, number)
        return shard, number - self._starts[shard]
