"""What travels is small, whole, and says of each weight where it comes from."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.graphs import EMBEDDED, NoGraphError, graph_file
from benchmarks.gpu.sequences import Sequences
from keyblock.bundle import GRAPH_FILE
from keyblock.runtime.batching import mark_all
from keyblock.runtime.session import Session


def test_every_kind_of_graph_travels_in_little(prepared: Path) -> None:
    """The vocabulary's 30,522 x 32 numbers alone would take 3.9 MB."""
    found = {path.name: path.stat().st_size for path in prepared.iterdir()}
    kinds = ("bf16", "fp16", "fp32", "plain", "unpadded")
    assert {f"{name}.{kind}.onnx" for name in (EMBEDDED, "tiny") for kind in kinds} <= found.keys()
    assert {"sequences.npz", "variant.json"} <= found.keys()
    assert max(found.values()) < 200_000


def test_of_another_architecture_some_kinds_are_missing(bench: Bench) -> None:
    """The fp16 graph without padding knows BERT's embeddings alone."""
    assert graph_file(bench, "tiny-roberta", "fp16").exists()
    with pytest.raises(NoGraphError, match="tiny-roberta has no graph unpadded"):
        graph_file(bench, "tiny-roberta", "unpadded")


@pytest.mark.parametrize("kind", ["fp32", "plain"])
def test_a_graph_that_travelled_gives_the_bundles_logits(bench: Bench, kind: str) -> None:
    sequences = Sequences.load(bench.prepared / "sequences.npz").packed
    expected = mark_all(Session(bench.bundle / GRAPH_FILE, "cpu", threads=1), sequences)
    found = mark_all(Session(graph_file(bench, EMBEDDED, kind), "cpu", threads=1), sequences)
    np.testing.assert_allclose(found.outputs, expected.outputs, atol=1e-4)
    assert np.ptp(expected.outputs) > 0.01, "they tell sequences apart"
    if kind == "fp32":
        assert found.marks is not None
        assert expected.marks is not None
        np.testing.assert_allclose(np.concatenate(found.marks), np.concatenate(expected.marks), atol=1e-4)


def test_random_graphs_have_the_whole_vocabulary(bench: Bench) -> None:
    graph = onnx.load(str(graph_file(bench, "tiny", "fp16"))).graph
    assert max(tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) == 2) == 2000


def test_a_graph_is_filled_once(bench: Bench) -> None:
    first = graph_file(bench, "tiny", "fp32").stat().st_mtime_ns
    assert graph_file(bench, "tiny", "fp32").stat().st_mtime_ns == first
