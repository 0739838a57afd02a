"""Graphs of the laboratory's rankers beside PyTorch, and served."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from export import ExportError
from export.exporter import export_run
from export.families import export_aggregator, export_ranker
from export.options import Options, VariantKind, WeightPrecision
from keyblock.runtime.aggregator import AggregatorSession
from keyblock.runtime.providers import Precision, Provider
from keyblock.runtime.session import Session
from lab.export import export_tokens
from lab.models.ck import Ck
from lab.models.tokens import TokenRanker
from lab.tests.test_token_ranker import NAMES
from tests.export.ranking import assert_ranks_alike
from tests.support.once import once
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker
from training.model.ranker_module import RankerModule

Tiny = Callable[..., CrossEncoder]
PARTS = {
    "segmenter": {"name": "cogltx", "block_tokens": 30},
    "packing": {"query_tokens": 12, "budget": 64, "budget_range": (64, 64)},
    "aggregator": {"name": "states", "passages": 3},
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Path:
    return once(tmp_path_factory, "token-encoder", tiny().encoder.save_pretrained)


def a_model(encoder: Path, name: str) -> TokenRanker:
    """Its query is longer than some sequences below, and shorter than others' queries; its logits are spread."""
    torch.manual_seed(0)
    model = new_ranker({"name": name, "query_tokens": 8}, str(encoder), attention="eager").eval()
    assert isinstance(model, TokenRanker)
    with torch.no_grad():
        for weight in model.rest().values():
            weight.mul_(3)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_says_what_the_model_says_in_any_shape(tmp_path: Path, encoder: Path, name: str) -> None:
    """Logits and features of sequences that PyTorch was not traced with; the encoder is fused whole."""
    model = a_model(encoder, name)
    fused = export_tokens(model, tmp_path / "model.onnx")
    assert fused == {"EmbedLayerNormalization": 1, "Attention": 2, "SkipLayerNormalization": 4, "BiasGelu": 2}
    session = Session(tmp_path / "model.onnx", Provider.CPU, 1)
    assert session.width == 1 + model.hidden_size
    for rows, length, query in ((1, 7, 2), (3, 40, 12), (2, 16, 5)):
        ids = np.random.default_rng(rows).integers(1000, 1030, (rows, length))
        mask = np.ones_like(ids)
        mask[0, length - 2 :] = 0
        types = (np.arange(length) >= query + 2) * mask
        ids[mask == 0] = 0
        with torch.inference_mode():
            expected = model.outputs(*(torch.from_numpy(array) for array in (ids, types, mask))).numpy()
        np.testing.assert_allclose(session.score(ids, types, mask), expected, atol=1e-4)


def test_a_bundle_ranks_as_the_run_did(tmp_path: Path, save_run: Callable[..., Path], encoder: Path) -> None:
    """Documents of several passages, through the library."""
    name = "cedr_pacrr"
    run = save_run(tmp_path / "run", a_model(encoder, name), **PARTS)
    options = Options(precision=WeightPrecision.FP32, provider=Provider.CPU, queries=3, depth=3)
    bundle = export_run(run, tmp_path / "bundle", options)
    assert bundle.manifest.aggregator is not None
    assert bundle.manifest.aggregator.kind["name"] == name
    assert (bundle.manifest.graph.output, bundle.manifest.aggregator.hidden) == ("outputs", a_model(encoder, name).hidden_size)
    assert_ranks_alike(bundle.path, run)


def test_an_encoder_of_another_architecture_is_refused(tmp_path: Path, encoder: Path) -> None:
    from transformers import BertConfig

    model = a_model(encoder, "cedr_knrm")
    assert isinstance(model.encoder.config, BertConfig)
    for layer in model.encoder.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.ReLU()
    with pytest.raises(ExportError, match=r"not fused \(BiasGelu 0 of 2\).* export an encoder of BERT's architecture"):
        export_tokens(model, tmp_path / "model.onnx")


def test_padding_cannot_be_removed_from_this_graph(tmp_path: Path, save_run: Callable[..., Path], encoder: Path) -> None:
    run = save_run(tmp_path / "run", a_model(encoder, "neural_model1"), **PARTS)
    options = Options(provider=Provider.CPU, queries=1, depth=1, variants=[VariantKind.FP16])
    with pytest.raises(ExportError, match="padding cannot be removed"):
        export_run(run, tmp_path / "bundle", options)


FAMILIES: dict[str, dict[str, Any]] = {
    "tkl": {"query_tokens": 8, "region": 10},
    "deeprank": {"query_tokens": 8, "contexts": 3},
    "late_transformer": {"layers": 1, "heads": 2},
}
PROVIDERS = [
    Provider.CPU,
    pytest.param(
        Provider.OPENVINO,
        marks=pytest.mark.skipif(
            "OpenVINOExecutionProvider" not in onnxruntime.get_available_providers(),
            reason="this ONNX Runtime has no OpenVINO (onnxruntime-openvino)",
        ),
    ),
]
Batch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@pytest.fixture(scope="module")
def backbone_of(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., CrossEncoder]) -> Path:
    return once(tmp_path_factory, "plain-encoder", tiny().encoder.save_pretrained)


def a_plain_model(backbone: Path, name: str, aggregator: str | None = "attention") -> RankerModule:
    """Weights that spread its logits; a late interaction learns how to combine, the others know it."""
    torch.manual_seed(0)
    learned = {"name": aggregator} if aggregator and name == "late_transformer" else None
    model = new_ranker({"name": name, **FAMILIES[name]}, str(backbone), attention="eager", aggregator=learned).eval()
    with torch.no_grad():
        for label, weight in model.named_parameters():
            if weight.dim() > 1 and not label.startswith(("encoder", "table", "saturation")):
                weight.mul_(3)
    return model


def a_batch(rows: int, length: int, words: int, query: int) -> Batch:
    """Ids, types and mask: queries grow shorter from row to row, to nothing, and so do the sequences."""
    ids = np.random.default_rng(rows).integers(words, words + 30, (rows, length))
    place, number = np.arange(length), np.arange(rows)[:, None]
    mask = (place < np.maximum(length - 2 * number, 4)).astype(np.int64)
    types = (place >= np.maximum(query - 3 * number, 0) + 2) * mask
    return ids * mask, types, mask


@pytest.mark.parametrize("window", [1, 3])
@torch.inference_mode()
def test_a_student_says_what_the_model_says_in_any_shape(tmp_path: Path, window: int) -> None:
    torch.manual_seed(0)
    model = Ck(torch.randn(50, 8), window, 6).eval()
    torch.nn.init.normal_(model.head.weight)
    assert export_ranker(model, tmp_path / "model.onnx") == {}
    session = Session(tmp_path / "model.onnx", Provider.CPU, 1)
    for rows, length, query in ((1, 7, 1), (3, 40, 12), (2, 25, 0)):
        batch = a_batch(rows, length, 10, query)
        expected = model(*map(torch.from_numpy, batch)).numpy()
        np.testing.assert_allclose(session.score(*batch), expected, atol=1e-3)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("name", "aggregator"), [("tkl", None), ("deeprank", None), ("late_transformer", "attention"), ("late_transformer", None)]
)
@torch.inference_mode()
def test_a_graph_says_what_the_model_says_in_any_shape_where_it_is_traced(
    tmp_path: Path, backbone_of: Path, name: str, aggregator: str | None, provider: Provider
) -> None:
    """Logits and states of sequences that PyTorch was not traced with, some longer than windows and regions."""
    model = a_plain_model(backbone_of, name, aggregator)
    export_ranker(model, tmp_path / "model.onnx")
    session = Session(tmp_path / "model.onnx", provider, 1, Precision.FP32)
    assert session.width == (1 + model.hidden_size if model.combines else None)
    for rows, length, query in ((1, 7, 2), (3, 40, 12), (4, 130, 9), (2, 16, 5)):
        batch = a_batch(rows, length, 1000, query)
        expected = model.outputs(*map(torch.from_numpy, batch)).numpy()
        np.testing.assert_allclose(session.score(*batch), expected, atol=1e-3, rtol=1e-5)


@torch.inference_mode()
def test_late_interaction_fuses_the_encoder_that_reads_twice(tmp_path: Path, backbone_of: Path) -> None:
    """Not as the cross-encoder that it descends from: two layers, once for the query and once for the passage."""
    fused = export_ranker(a_plain_model(backbone_of, "late_transformer"), tmp_path / "model.onnx")
    assert (fused["EmbedLayerNormalization"], fused["Attention"]) == (2, 4)


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_passages_are_combined_as_pytorch_does(tmp_path: Path, backbone_of: Path, name: str) -> None:
    """States of real sequences, for one to five documents of one to six passages, padding in between."""
    model = a_plain_model(backbone_of, name)
    export_aggregator(model, tmp_path / "aggregator.onnx")
    graph = AggregatorSession(tmp_path / "aggregator.onnx", Provider.CPU, 1)
    states = model.states(*map(torch.from_numpy, a_batch(6, 60, 1000, 6)))
    for docs, passages in ((1, 1), (5, 2), (2, 6)):
        given = states[torch.arange(docs * passages) % 6].view(docs, passages, -1)
        mask = torch.arange(passages) <= torch.arange(docs)[:, None]
        expected = model.combine(given, mask).numpy()
        np.testing.assert_allclose(graph.combine(given.numpy(), mask.numpy()), expected, atol=1e-3, rtol=1e-5)
