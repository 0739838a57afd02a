"""Locks a run directory, so that only one training writes into it."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from keyblock import lock


class LockError(ValueError):
    """Another process trains into the run directory."""


def locked(run: Path, wanted: bool = True) -> AbstractContextManager[None]:
    """Lock RUN, which is created if missing; without `wanted` do nothing. Raises LockError if another process holds the lock."""
    held = LockError(f"{run}: another process is training into it; wait for it, or choose another --out")
    return lock.locked(run, held) if wanted else nullcontext()
