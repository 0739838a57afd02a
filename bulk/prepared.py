"""Turns prepared documents into Arrow columns and back. The arrays that are read are views of the file's pages."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyblock.prepared import PreparedDocument

_FLAT = ("token_ids", "starts", "ends", "terms", "term_bounds", "title_ids")  # bounds and vectors are tables


def columns_of(documents: Sequence[PreparedDocument]) -> dict[str, list[Any]]:
    """The documents as columns of `bulk.schemas.PREPARED`."""
    columns: dict[str, list[Any]] = {name: [getattr(one, name) for one in documents] for name in _FLAT}
    columns["bounds"] = [one.bounds.ravel() for one in documents]
    columns["vectors"] = [None if one.vectors is None else one.vectors.ravel() for one in documents]
    columns["dimensions"] = [-1 if one.vectors is None else one.vectors.shape[1] for one in documents]
    return columns


class _Lists(NamedTuple):
    """A column of lists: `values[offsets[i]:offsets[i + 1]]` is row i."""

    values: NDArray[Any]
    offsets: NDArray[np.int32]

    def row(self, number: int) -> NDArray[Any]:
        return self.values[self.offsets[number] : self.offsets[number + 1]]


class PreparedTable:
    """The documents of a record batch of `bulk.schemas.PREPARED`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._dimensions = batch.column("dimensions").to_numpy()
        columns = {name: batch.column(name) for name in (*_FLAT, "bounds", "vectors")}
        self._lists = {name: _Lists(column.values.to_numpy(), column.offsets.to_numpy()) for name, column in columns.items()}

    def __len__(self) -> int:
        return len(self._dimensions)

    def __getitem__(self, number: int) -> PreparedDocument:
        row = {name: lists.row(number) for name, lists in self._lists.items()}
        vectors, dimensions = row.pop("vectors"), int(self._dimensions[number])
        block_vectors = None if dimensions < 0 else vectors.reshape(-1, dimensions)
        return PreparedDocument(**row | {"bounds": row["bounds"].reshape(-1, 2)}, vectors=block_vectors)
