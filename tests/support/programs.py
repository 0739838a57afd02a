"""Programs that tests drive: where one is missing they are skipped by name, or fail where KEYBLOCK_CI says that all are there."""

import os
import shutil
from typing import NoReturn

import pytest


def need(program: str, package: str) -> str:
    """The path of a program of a Debian package."""
    path = shutil.which(program)
    if path is None:
        missing(f"{program} is not installed (Debian: apt install {package})")
    return path


def missing(problem: str) -> NoReturn:
    """Skip, or fail where nothing may be missing."""
    if os.environ.get("KEYBLOCK_CI"):
        pytest.fail(problem)
    pytest.skip(problem)
