"""Counts of the requests in flight in each front, in memory that all fronts and the supervisor map."""

import tempfile
from ctypes import Array, sizeof
from mmap import mmap
from typing import IO

from service.ranking.admission import Load, Loads


def loads_file(fronts: int) -> IO[bytes]:
    """Make a file without a name for the loads of the fronts, all of them zero. Raises OSError."""
    made = tempfile.TemporaryFile(buffering=0)
    made.write(bytes(fronts * sizeof(Load)))  # a full disk fails here, and not later with a signal to the writer of the memory
    return made


def mapped(file: int, fronts: int) -> Array[Load]:
    """Map the loads of all fronts by the file's descriptor; each process that maps it sees the others' writes."""
    return (Load * fronts).from_buffer(mmap(file, fronts * sizeof(Load)))


def loads_of(front: int, all_loads: Array[Load]) -> Loads:
    """The loads from the view of one front; the first front is 0."""
    return Loads(all_loads[front], [load for number, load in enumerate(all_loads) if number != front])
