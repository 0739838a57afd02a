"""What requests in flight hold in each front: in memory that all of them and the supervisor map."""

import tempfile
from ctypes import Array, sizeof
from mmap import mmap
from typing import IO

from service.ranking.admission import Load, Loads


def loads_file(fronts: int) -> IO[bytes]:
    """A file without a name for what so many hold, which is nothing yet. Raises OSError."""
    made = tempfile.TemporaryFile(buffering=0)
    made.write(bytes(fronts * sizeof(Load)))  # a disk that is full says so now, and not by a signal to who writes the memory
    return made


def mapped(file: int, fronts: int) -> Array[Load]:
    """What each front holds, by the descriptor of the file: whoever maps it sees what others write."""
    return (Load * fronts).from_buffer(mmap(file, fronts * sizeof(Load)))


def loads_of(front: int, all_loads: Array[Load]) -> Loads:
    """The same as one front sees it; the first one is 0."""
    return Loads(all_loads[front], [load for number, load in enumerate(all_loads) if number != front])
