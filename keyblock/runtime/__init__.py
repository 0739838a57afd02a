"""Running a bundle's graph: providers, sessions and fixed-shape batches over ONNX Runtime.

The only part of KeyBlock's core that imports ONNX Runtime; service, evaluation and export share it.
"""
