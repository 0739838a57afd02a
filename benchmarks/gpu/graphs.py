"""Fills the prepared graphs with weights, as files that a session can open."""

from pathlib import Path

import onnx

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.hollow import fill
from keyblock.bundle import GRAPH_FILE

EMBEDDED = "embedded"  # has the bundle's weights; other graphs have random weights


class NoGraphError(RuntimeError):
    """There is no such prepared graph. The message is one line."""


def graph_file(bench: Bench, name: str, kind: str) -> Path:
    """The graph of a shape, of one kind (see `benchmarks.gpu.prepare.KINDS`), filled when it is first asked for.

    Raises NoGraphError.
    """
    prepared, path = bench.prepared / f"{name}.{kind}.onnx", bench.home / "graphs" / f"{name}.{kind}.onnx"
    if not prepared.exists():
        raise NoGraphError(f"{name} has no graph {kind}")
    if not path.exists() or path.stat().st_mtime < prepared.stat().st_mtime:
        path.parent.mkdir(parents=True, exist_ok=True)
        graph = onnx.load(str(prepared))
        fill(graph, onnx.load(str(bench.bundle / GRAPH_FILE)) if name == EMBEDDED else None)
        partial = path.with_suffix(".part")
        onnx.save(graph, str(partial))
        partial.replace(path)
    return path
