"""One training at a time writes into a run directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class LockError(ValueError):
    """Another process trains into the run directory."""


@contextmanager
def alone_in(run: Path, wanted: bool = True) -> Iterator[None]:
    """Hold RUN, made where it is not there; the kernel lets go of it however the process ends. Nothing where it is not `wanted`.

    A file system that cannot lock a directory is trusted. Raises LockError when another process holds it.
    """
    if not wanted:
        yield
        return
    run.mkdir(parents=True, exist_ok=True)
    directory = os.open(run, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockError(f"{run}: another process is training into it; wait for it, or choose another --out") from None
        yield
    finally:
        os.close(directory)
