"""One training at a time writes into a run directory."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from keyblock import lock


class LockError(ValueError):
    """Another process trains into the run directory."""


def locked(run: Path, wanted: bool = True) -> AbstractContextManager[None]:
    """Hold RUN, made where it is not there; nothing where it is not `wanted`. Raises LockError when another process holds it."""
    held = LockError(f"{run}: another process is training into it; wait for it, or choose another --out")
    return lock.locked(run, held) if wanted else nullcontext()
