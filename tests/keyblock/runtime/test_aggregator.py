from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from keyblock.runtime.aggregator import AggregatorSession
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import ScoreError, SessionError

MakeGraph = Callable[..., Path]


def documents(*counts: int) -> tuple[np.ndarray, np.ndarray]:
    mask = np.arange(max(counts)) < np.asarray(counts)[:, None]
    return np.random.default_rng(0).normal(size=(*mask.shape, 2)).astype(np.float32), mask


def test_logits_are_the_graphs(aggregator_graph: Path) -> None:
    session = AggregatorSession(aggregator_graph, threads=1)
    assert session.hidden == 2
    for counts in ((3, 1), (5,), (0, 16, 2)):
        states, mask = documents(*counts)
        logits = session.combine(states, mask)
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, 0.5 * (states * mask[:, :, None]).sum((1, 2)), rtol=1e-5, atol=1e-6)
    others = states.astype(np.float64)[:, ::-1], mask.astype(np.int8)[:, ::-1]  # strides, and numbers of other sizes
    np.testing.assert_allclose(session.combine(*others), logits, rtol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["cpu", "openvino", "auto"])
def test_the_aggregator_computes_on_the_cpu_beside_an_encoder_that_does(aggregator_graph: Path, asked: str) -> None:
    if asked == "openvino" and "OpenVINOExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no OpenVINO (onnxruntime-openvino)")
    assert AggregatorSession(aggregator_graph, asked).choice.provider in (Provider.CPU, Provider.CUDA)


@pytest.mark.parametrize(
    ("states", "mask"), [((2, 3, 4), (2, 3)), ((2, 3, 2), (2, 2)), ((2, 2), (2, 2)), ((0, 3, 2), (0, 3)), ((2, 0, 2), (2, 0))]
)
def test_shapes_that_do_not_fit(aggregator_graph: Path, states: tuple[int, ...], mask: tuple[int, ...]) -> None:
    with pytest.raises(ScoreError, match=r"must have shapes \(documents, passages, 2\) and \(documents, passages\)"):
        AggregatorSession(aggregator_graph, threads=1).combine(np.ones(states, np.float32), np.ones(mask, bool))


def test_a_logit_that_is_not_finite_is_an_error(make_aggregator: MakeGraph) -> None:
    session = AggregatorSession(make_aggregator("huge", factor=3e38), threads=1)
    states, mask = documents(3, 2)
    with pytest.raises(ScoreError, match="not finite"):
        session.combine(states + 10, mask)
    assert session.combine(states * 0, mask).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": (2, "passages", 2)}, "documents and passages must be free"),
        ({"states": ("docs", 5, 2)}, "documents and passages must be free"),
        ({"states": ("docs", "passages", "hidden")}, "an aggregator has {'states': 3, 'mask': 2} and one"),
        ({"inputs": ("vectors", "mask")}, "has inputs {'vectors': 3, 'mask': 2}"),
    ],
)
def test_another_graph_is_refused(make_aggregator: MakeGraph, changes: dict[str, object], message: str) -> None:
    with pytest.raises(SessionError, match=message):
        AggregatorSession(make_aggregator("other", **changes))


def test_an_encoders_graph_and_a_missing_file_are_refused(graph: Path, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="an aggregator has"):
        AggregatorSession(graph)
    with pytest.raises(SessionError, match="no such graph"):
        AggregatorSession(tmp_path / "none.onnx")
