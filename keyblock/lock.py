"""A lock on a directory: one process at a time writes into it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(directory: Path, held: Exception) -> Iterator[None]:
    """Lock a directory, creating it if needed; the kernel releases the lock however the process ends.

    On a file system that cannot lock directories, nothing is locked. Raises `held` if another process holds the lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise held from None
        except OSError:
            pass
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing does not release the lock if a process was forked meanwhile
        os.close(descriptor)
