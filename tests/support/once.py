"""What the processes of one run of tests share: pytest-xdist gives each a directory of its own, beside the others'."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A directory that the first process to ask for it makes, while the others wait. Nobody writes into it afterwards.

    Args:
        factory: of this process.
        name: of the directory; may have folders.
        make: fills the directory, which is empty.
    """
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    made = place.parent / f".{place.name}.made"
    with (place.parent / f".{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel lets go of it however the process ends
        if not made.exists():
            shutil.rmtree(place, ignore_errors=True)  # of a process that died
            place.mkdir()
            make(place)
            made.touch()
    return place
