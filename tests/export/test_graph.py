from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from export import ExportError
from export.families import export_cross_encoder
from export.graphs import export_graph_of
from export.last_attention import CLS_POSITION, narrow_last_layer
from export.options import WeightPrecision
from export.variants import unpad
from keyblock.runtime.session import Session
from training.declarations import CrossEncoderFamily
from training.model.cross_encoder import CrossEncoder
from training.model.starting import POOLING, graph_weights

FUSED = {"EmbedLayerNormalization": 1, "Attention": 2, "SkipLayerNormalization": 4, "BiasGelu": 2}


@pytest.fixture(scope="module")
def session(fp32: Path) -> Session:
    return Session(fp32, "cpu", threads=1)


def batch(rows: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(length)
    tokens = random.integers(1, length + 1, rows)
    mask = (np.arange(length) < tokens[:, None]).astype(np.int64)
    return random.integers(0, 30522, (rows, length)), random.integers(0, 2, (rows, length)), mask


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 32), (3, 17), (5, 128), (2, 512)])
def test_batch_and_length_are_free_and_logits_are_pytorchs(model: CrossEncoder, session: Session, rows: int, length: int) -> None:
    ids, types, mask = batch(rows, length)
    with torch.inference_mode():
        expected = model(*map(torch.from_numpy, (ids, types, mask))).numpy()
    np.testing.assert_allclose(session.score(ids, types, mask), expected, atol=1e-4)


def test_a_model_with_an_aggregator_gives_states_beside_logits(tmp_path: Path, tiny: Callable[..., CrossEncoder]) -> None:
    model = tiny(aggregator={"name": "attention"}, attn_implementation="eager")
    assert export_cross_encoder(model, tmp_path / "fp32.onnx") == FUSED
    graph = onnx.load(str(tmp_path / "fp32.onnx"))
    assert [given.name for given in graph.graph.output] == ["outputs"]
    assert sum("cls_position" in node.input for node in graph.graph.node) == 2, "the last layer computes [CLS] alone"
    session = Session(tmp_path / "fp32.onnx", "cpu", threads=1)
    assert session.width == 33
    for rows, length in ((1, 1), (3, 17), (2, 128)):
        given = batch(rows, length)
        with torch.inference_mode():
            expected = model.outputs(*map(torch.from_numpy, given)).numpy()
        np.testing.assert_allclose(session.score(*given), expected, atol=1e-4)


def test_dropout_is_neither_exported_nor_left_on(tmp_path: Path, tiny: Callable[..., CrossEncoder]) -> None:
    model = tiny(hidden_dropout_prob=0.5, attn_implementation="eager").train()
    export_cross_encoder(model, tmp_path / "fp32.onnx")
    assert not any(module.training for module in model.modules())
    ids, types, mask = batch(2, 24)
    with torch.inference_mode():
        expected = model(*map(torch.from_numpy, (ids, types, mask))).numpy()
    np.testing.assert_allclose(Session(tmp_path / "fp32.onnx", "cpu", threads=1).score(ids, types, mask), expected, atol=1e-4)


def test_an_encoder_that_does_not_fuse_is_refused(tmp_path: Path, tiny: Callable[..., CrossEncoder]) -> None:
    relu = tiny(hidden_act="relu", attn_implementation="eager")
    with pytest.raises(ExportError, match=r"is not fused \(BiasGelu 0 of 2\)"):
        export_cross_encoder(relu, tmp_path / "relu.onnx")


def test_a_graph_with_another_ending_is_not_narrowed() -> None:
    nodes = [helper.make_node("Attention", ["x", "w", "b"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    with pytest.raises(ExportError, match=r"is read by \['Relu'\]"):
        narrow_last_layer(helper.make_model(helper.make_graph(nodes, "short", [], [])))


@pytest.mark.parametrize(("pooling", "aggregator"), [("mean", None), ("last", {"name": "attention"})])
def test_other_poolings_are_pytorchs_too(
    tmp_path: Path, tiny: Callable[..., CrossEncoder], pooling: str, aggregator: dict[str, str] | None
) -> None:
    """No layer is narrowed to [CLS], nor its attention: all tokens' states are read. The graph says how, and holds the weights."""
    model = pooled_by(pooling, tiny(aggregator, attn_implementation="eager"))
    export_graph_of(model, tmp_path / "exact").served(tmp_path / "served", WeightPrecision.FP32)
    session = Session(tmp_path / "served" / "model.onnx", "cpu", threads=1)
    for rows, length in ((1, 1), (3, 40), (2, 300)):
        given = batch(rows, length)
        with torch.inference_mode():
            expected = model.outputs(*map(torch.from_numpy, given)).numpy()
        np.testing.assert_allclose(session.score(*given), expected, atol=1e-4)
        wider = [np.pad(array, ((0, 0), (0, 24)), constant_values=value) for array, value in zip(given, (5, 1, 0), strict=True)]
        np.testing.assert_allclose(session.score(*wider), session.score(*given), atol=1e-4)
    graph = onnx.load(str(tmp_path / "served" / "model.onnx"))
    assert {prop.key: prop.value for prop in graph.metadata_props}[POOLING] == pooling
    assert not any(CLS_POSITION in node.input for node in graph.graph.node)
    torch.testing.assert_close(graph_weights(graph)["head.weight"], model.head.weight.detach())
    with pytest.raises(ExportError, match="padding cannot be removed"):
        unpad(graph)


def pooled_by(pooling: str, model: CrossEncoder) -> CrossEncoder:
    """The same weights, pooled otherwise."""
    other = CrossEncoder(model.encoder, model.aggregator, settings=CrossEncoderFamily(pooling=pooling)).eval()
    other.load_state_dict(model.state_dict())
    return other
