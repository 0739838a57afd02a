"""The compiled part, `keyblock_native`, where it is installed: asked for here alone. Without it all works, and takes longer."""

from importlib import import_module
from types import ModuleType
from typing import Any

INTERFACE = 5  # of keyblock_native, as it is used here


def _installed() -> ModuleType | None:
    try:
        found = import_module("keyblock_native")
    except ImportError:
        return None
    return found if getattr(found, "INTERFACE", None) == INTERFACE else None


core: Any = _installed()
"""The compiled module; None where it is not installed, or is not of this version."""


def absent() -> str:
    """Why documents are prepared in Python, in one line; empty where they are not."""
    if core is not None:
        return ""
    return "keyblock_native is not installed in this version: documents are prepared in Python, which takes longer (docs/native.md)"
