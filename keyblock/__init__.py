"""KeyBlock's ranking core: text, blocks, selection, packing, fusion and the bundle.

Training and serving build the same pipeline from the same description, so a model is fed online exactly what it was
trained on. Nothing here imports torch, transformers or fastapi; ONNX Runtime is imported in `keyblock.runtime` only.
"""

__version__ = "0.1.0"
