"""Running a bundle's graph: providers, sessions and fixed-shape batches over ONNX Runtime.

The only part of KeyBlock's core that imports ONNX Runtime; service, evaluation and export share it.
"""

import os

# ONNX Runtime's own wheels (1.31 at the latest) report to Microsoft over HTTPS unless this is set before they are loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
