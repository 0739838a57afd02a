"""The compiled part, `keyblock_native`, if it is installed. Only this module imports it; without it all works, but slower."""

from importlib import import_module
from types import ModuleType
from typing import Any

INTERFACE = 9  # the version of keyblock_native's interface that this package uses


def _installed() -> ModuleType | None:
    try:
        found = import_module("keyblock_native")
    except ImportError:
        return None
    return found if getattr(found, "INTERFACE", None) == INTERFACE else None


core: Any = _installed()
"""The compiled module; None if it is not installed, or has another interface version."""


def why_not_compiled() -> str:
    """Why documents are prepared in Python, in one line; empty if the compiled part prepares them."""
    if core is not None:
        return ""
    return "keyblock_native is not installed in this version: documents are prepared in Python, slowly (docs/develop/native.md)"
