"""A directory that one process at a time writes into."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone_in(directory: Path, held: Exception) -> Iterator[None]:
    """Hold a directory, made where it is not there; the kernel lets go of it however the process ends.

    A file system that cannot lock a directory is trusted. Raises `held` where another process holds it.
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
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone does not let go where a process was forked meanwhile
        os.close(descriptor)
