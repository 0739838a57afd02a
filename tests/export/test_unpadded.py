"""CUDA's operators without padding, beside a slow and obvious numpy version of each: there is no GPU where the tests run."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from export import ExportError
from export.families import export_cross_encoder
from export.variants import halve_weights, remove_padding, unpad
from keyblock.bundle import load_bundle
from keyblock.runtime.batching import Batch, fill
from keyblock.runtime.session import INPUTS, Session
from training.model.cross_encoder import Marker

Array = NDArray[Any]


def normed(values: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    values = values.astype(np.float32)
    centred = values - values.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return (scaled * gamma + beta).astype(gamma.dtype)


class Contributed(OpRun):  # type: ignore[misc]
    """An operator of ONNX Runtime's own."""

    op_domain = "com.microsoft"


class EmbedLayerNormalization(Contributed):
    def _run(self, ids, types, words, positions, segments, gamma, beta, mask, epsilon=None):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        summed = words[ids] + positions[np.arange(ids.shape[1])] + segments[types]
        return normed(summed, gamma, beta, epsilon), mask.sum(1).astype(np.int32)


class RemovePadding(Contributed):
    def _run(self, states, lengths):  # type: ignore[no-untyped-def]
        tokens = np.concatenate([row[:length] for row, length in zip(states, lengths, strict=True)])
        real = np.arange(states.shape[1]) < lengths[:, None]
        places = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)]).reshape(real.shape)  # padding's behind the tokens'
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return tokens, places.astype(np.int32), starts, np.asarray([lengths.max()], np.int32)


class RestorePadding(Contributed):
    def _run(self, tokens, places):  # type: ignore[no-untyped-def]
        rows = np.zeros((places.size, tokens.shape[1]), tokens.dtype)
        rows[places.ravel()[: len(tokens)]] = tokens
        return (rows.reshape(*places.shape, -1),)


class PackedAttention(Contributed):
    def _run(self, tokens, weights, bias, places, starts, num_heads=None, scale=None):  # type: ignore[no-untyped-def]
        mixed = np.zeros_like(tokens)
        for start, end in pairwise(starts):  # a sequence sees itself alone
            query, key, value = np.split(tokens[start:end] @ weights + bias, 3, axis=1)
            for head in np.split(np.arange(tokens.shape[1]), num_heads):
                logits = (query[:, head] @ key[:, head].T).astype(np.float32) / np.sqrt(len(head))
                shares = np.exp(logits - logits.max(1, keepdims=True))
                mixed[start:end, head] = (shares / shares.sum(1, keepdims=True)).astype(tokens.dtype) @ value[:, head]
        return (mixed,)


class SkipLayerNormalization(Contributed):
    def _run(self, states, skip, gamma, beta, bias, epsilon=None):  # type: ignore[no-untyped-def]
        return (normed(states + skip + bias, gamma, beta, epsilon),)


class BiasGelu(Contributed):
    def _run(self, states, bias):  # type: ignore[no-untyped-def]
        from scipy.special import erf

        values = (states + bias).astype(np.float32)
        return ((values * 0.5 * (1 + erf(values / np.sqrt(2)))).astype(states.dtype),)


OPERATORS = [EmbedLayerNormalization, RemovePadding, RestorePadding, PackedAttention, SkipLayerNormalization, BiasGelu]


@pytest.fixture
def batch() -> dict[str, Array]:
    """Four sequences of different lengths, one of a single token."""
    random = np.random.default_rng(0)
    lengths = np.asarray([12, 5, 1, 9])
    mask = (np.arange(12) < lengths[:, None]).astype(np.int64)
    ids = np.where(mask, random.integers(1000, 30000, mask.shape), 0)
    types = np.where(mask, np.arange(12) > 3, 0).astype(np.int64)
    return dict(zip(INPUTS, (ids, types, mask), strict=True))


def run(graph: onnx.ModelProto, batch: dict[str, Array]) -> Array:
    (logits,) = ReferenceEvaluator(graph, new_ops=OPERATORS).run(None, batch)
    return np.asarray(logits)


@pytest.mark.parametrize("aggregator", [None, {"name": "max"}], ids=["logits", "states"])
def test_without_padding_outputs_are_the_same(tiny: Any, tmp_path: Path, batch: dict[str, Array], aggregator: Any) -> None:
    path = tmp_path / "model.onnx"
    export_cross_encoder(tiny(aggregator, attn_implementation="eager"), path)
    graph = onnx.load(str(path))
    remove_padding(graph)
    expected = Session(path, "cpu", threads=1).score(*batch.values())
    np.testing.assert_allclose(run(graph, batch), expected, atol=1e-4)
    longer = {name: np.pad(values, ((0, 0), (0, 7))) for name, values in batch.items()}
    np.testing.assert_allclose(run(graph, longer), expected, atol=1e-4)


def test_in_fp16_they_are_close_and_inputs_and_output_stay(fp32: Path, batch: dict[str, Array]) -> None:
    graph, before = onnx.load(str(fp32)), onnx.load(str(fp32))
    unpad(graph)
    assert list(graph.graph.input) == list(before.graph.input)
    assert list(graph.graph.output) == list(before.graph.output)
    operators = [node.op_type for node in graph.graph.node]
    assert "Attention" not in operators
    assert (operators.count("PackedAttention"), operators.count("RemovePadding")) == (2, 1)
    stored = {tensor.name: tensor.data_type for tensor in graph.graph.initializer if len(tensor.dims) > 1}
    assert {name for name, kind in stored.items() if kind == TensorProto.FLOAT} == {"model.head.weight"}
    logits = run(graph, batch)
    expected = Session(fp32, "cpu", threads=1).score(*batch.values())
    assert logits.dtype == np.float32
    assert 0 < np.abs(logits - expected).max() < 0.1


def test_the_smallest_weights_round_as_those_of_the_served_graph(fp32: Path) -> None:
    graph, served = onnx.load(str(fp32)), onnx.load(str(fp32))
    for one in (graph, served):
        table = next(tensor for tensor in one.graph.initializer if tensor.name.endswith("word_embeddings.weight"))
        values = numpy_helper.to_array(table).copy()
        values[0, :4] = 1e-9, -1e-8, 5e-8, 1e-7
        table.CopyFrom(numpy_helper.from_array(values, table.name))
    unpad(graph)
    halve_weights(served)
    stored = {tensor.raw_data for tensor in served.graph.initializer}
    assert next(t for t in graph.graph.initializer if t.name.endswith("word_embeddings.weight")).raw_data in stored


@pytest.fixture(scope="module")
def marking(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fused graph of a model with a marker."""
    model = tiny(attn_implementation="eager")
    torch.manual_seed(0)
    model.marker = Marker(model.hidden_size, 8)
    path = tmp_path_factory.mktemp("marking") / "marking.onnx"
    export_cross_encoder(model, path)
    return path


@pytest.mark.parametrize(("change", "tolerance"), [(remove_padding, 1e-4), (unpad, 0.1)], ids=["fp32", "fp16"])
def test_marks_are_of_the_tokens_where_they_stood(
    marking: Path, batch: dict[str, Array], change: Callable[[onnx.ModelProto], None], tolerance: float
) -> None:
    graph = onnx.load(str(marking))
    change(graph)
    logits, marks = ReferenceEvaluator(graph, new_ops=OPERATORS).run(None, batch)
    expected = Session(marking, "cpu", threads=1).mark(*batch.values())
    real = batch[INPUTS[2]].astype(bool)
    assert marks.shape == real.shape
    np.testing.assert_allclose(logits, expected.outputs, atol=tolerance)
    np.testing.assert_allclose(marks[real], expected.marks[real], atol=tolerance)  # type: ignore[index]
    assert not marks[~real].any()


def test_a_graph_of_another_form_is_refused(fp32: Path) -> None:
    graph = onnx.load(str(fp32))
    remove_padding(graph)
    with pytest.raises(ExportError, match=r"padding cannot be removed: the graph has 1 fused embeddings and 0 gathers of \[CLS\]"):
        remove_padding(graph)


def test_the_embedded_bundle_computes_the_same_in_fp16() -> None:
    """On real texts, with the weights that its fp16 graph reads in the bundle's own graph."""
    bundle = load_bundle(Path(__file__).parents[2] / "models" / "default")
    files, _ = bundle.encoder_files("fp16")
    assert files.shared == bundle.graph_path
    assert files.graph.stat().st_size < 200_000, "it repeats no matrix"
    query = bundle.pipeline.prepare_query("How long is the notice period for the flat?")
    texts = ["The notice period for the flat is three months.", "Danube"]
    sequences = [bundle.pipeline.select(query, bundle.pipeline.prepare_document(text)).packed for text in texts]
    batch = Batch(tuple(range(len(texts))), max(len(one.ids) for one in sequences) + 3, len(texts))
    ids, types, mask = fill(batch, sequences, bundle.tokenizer.pad_id, bundle.tokenizer.template.document_type)
    expected = Session(bundle.graph_path, "cpu", threads=1, precision="fp32").mark(ids, types, mask)
    given = dict(zip(INPUTS, (ids, types, mask), strict=True))
    logits, marks = ReferenceEvaluator(onnx.load(str(files.graph)), new_ops=OPERATORS).run(None, given)
    np.testing.assert_allclose(logits, expected.outputs, atol=0.05)
    real = mask.astype(bool)
    np.testing.assert_allclose(marks[real], expected.marks[real], atol=0.05)  # type: ignore[index]
    assert np.ptp(expected.outputs) > 5, "and they tell the texts apart"
