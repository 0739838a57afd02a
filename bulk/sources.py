"""Where a scorer has its documents from: prepared before, by their numbers, or prepared from the texts that a list brings."""

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

OPEN_SHARDS = 256  # mapped at a time: each is an open file
T = TypeVar("T")


class Documents(NamedTuple):
    """The documents of a record batch of lists, list after list.

    Attributes:
        prepared: as the pipeline made them.
        texts: theirs; "" for each where no texts are wanted.
    """

    prepared: Sequence[PreparedDocument]
    texts: Sequence[str]


class Source(Protocol):
    """What a scorer asks for documents."""

    def read(self, column: pa.StructArray, *, texts: bool) -> Documents:
        """The documents of a column that has what the source knows them by."""


class TextSource:
    """Prepares documents of `bulk.schemas.TEXT_DOCUMENT`; each distinct one of a record batch once.

    Args:
        pipeline: prepares them.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def read(self, column: pa.StructArray, *, texts: bool) -> Documents:
        """See Source."""
        of_documents = [text or "" for text in column.field("text").to_pylist()]
        keys = list(zip(of_documents, (title or "" for title in column.field("title").to_pylist()), strict=True))
        distinct = list(dict.fromkeys(keys))
        made = self._pipeline.prepare_documents([text for text, _ in distinct], [title for _, title in distinct])
        known = dict(zip(distinct, made, strict=True))
        return Documents([known[key] for key in keys], of_documents if texts else [""] * len(keys))


class _Mapped(Generic[T]):
    """Shards by their numbers, the last used of them open."""

    def __init__(self, opened: Callable[[int], T]) -> None:
        self._opened = opened
        self._shards: OrderedDict[int, T] = OrderedDict()

    def __getitem__(self, shard: int) -> T:
        if shard in self._shards:
            self._shards.move_to_end(shard)
        else:
            self._shards[shard] = self._opened(shard)
            if len(self._shards) > OPEN_SHARDS:
                self._shards.popitem(last=False)
        return self._shards[shard]


class StoredSource:
    """Maps documents of `bulk.schemas.STORED_DOCUMENT` that were prepared before.

    Args:
        layout: of the job.
        counts: documents of each shard.
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
        """The shard of a document, and its row there."""
        shard = bisect_right(self._ends, number)
        return shard, number - self._starts[shard]
