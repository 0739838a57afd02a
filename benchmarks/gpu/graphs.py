"""The graphs that travelled, with their weights again: files that a session opens."""

from pathlib import Path

import onnx

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.hollow import fill
from keyblock.bundle import GRAPH_FILE

EMBEDDED = "embedded"  # the bundle's own weights; other graphs have random ones


class NoGraphError(RuntimeError):
    """No such graph travelled; one line."""


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
