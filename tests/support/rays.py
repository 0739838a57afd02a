"""Ray, where it is installed; what it warns of as it is imported is its own affair."""

import importlib
import warnings
from importlib.util import find_spec
from typing import Any

from tests.support.programs import missing


def need_ray() -> None:
    """Skip, or fail where nothing may be missing."""
    if find_spec("ray") is None:
        missing("Ray is not installed (pip install 'keyblock[ray-serve]')")


def imported(module: str) -> Any:
    """A module that imports Ray."""
    need_ray()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(module)
