"""KeyBlock's ranking core: text, blocks, selection, packing, fusion and the bundle; and `Ranker`, a bundle in the process.

Training and serving build the same pipeline from the same description, so a model is fed online exactly what it was
trained on. Nothing here imports torch, transformers or fastapi; ONNX Runtime is imported in `keyblock.runtime` only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyblock.ranker import Ranker

__version__ = "0.1.0"
__all__ = ["Ranker", "__version__"]


def __getattr__(name: str) -> Any:
    """`Ranker` is imported when it is asked for: the client needs none of what it needs."""
    if name == "Ranker":
        return import_module("keyblock.ranker").Ranker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
