"""Programs that tests drive: where one is missing they are skipped by name, or fail where KEYBLOCK_CI says that all are there."""

import os
import shutil

import pytest


def need(program: str, package: str) -> str:
    """The path of a program of a Debian package."""
    path = shutil.which(program)
    if path is None:
        told = f"{program} is not installed (Debian: apt install {package})"
        (pytest.fail if os.environ.get("KEYBLOCK_CI") else pytest.skip)(told)
    return path
