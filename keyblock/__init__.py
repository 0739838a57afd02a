"""KeyBlock's ranking core: text, blocks, selection, packing, fusion and the bundle; and `Ranker`, which runs a bundle in-process.

Training and serving build the same pipeline from the same description, so the online model reads exactly what it was trained
on. Nothing here imports torch, transformers or fastapi; only `keyblock.runtime` imports ONNX Runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyblock.ranker import Ranker

__version__ = "0.1.0"
__all__ = ["Ranker", "__version__"]


def __getattr__(name: str) -> Any:
    """Import `Ranker` on first use, so that the client does not load its dependencies."""
    if name == "Ranker":
        return import_module("keyblock.ranker").Ranker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
