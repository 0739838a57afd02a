"""From a training run to a bundle: the ONNX graph, its fusion, its precision, and the checks that it must pass."""

import keyblock.runtime  # noqa: F401  # before any module here loads ONNX Runtime: it says how


class ExportError(RuntimeError):
    """A run cannot be exported, or its graph failed a check; one line that says what was measured and what to do."""
