"""From a training run to a bundle: the ONNX graph, its fusion, its precision, and the checks that it must pass."""

import keyblock.runtime  # noqa: F401  # first: it sets ONNX Runtime's environment before any module here loads it


class ExportError(RuntimeError):
    """A run cannot be exported, or its graph failed a check; the message says in one line what was measured and what to do."""
