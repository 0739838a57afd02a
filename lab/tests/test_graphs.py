"""Graphs of the laboratory's rankers beside PyTorch: in any shape, with passages combined; and what cannot be exported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from export import ExportError
from export.exporter import export_run
from export.families import export_aggregator, export_ranker
from export.graph import fused_nodes
from export.options import Options, VariantKind
from keyblock.runtime.aggregator import AggregatorSession
from keyblock.runtime.providers import Precision, Provider
from keyblock.runtime.session import Session
from lab.tests.test_families import COMBINING, NAMES
from tests.support.once import once
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker
from training.model.ranker_module import RankerModule

PARTS = {
    "segmenter": {"name": "cogltx", "block_tokens": 30},
    "packing": {"query_tokens": 12, "budget": 64, "budget_range": (64, 64)},
    "aggregator": {"name": "states", "passages": 3},
}
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"query_tokens": 8} for name in NAMES},  # longer than some queries below, and shorter than others
    "tkl": {"query_tokens": 8, "region": 10},
    "deeprank": {"query_tokens": 8, "contexts": 3},
    "late_transformer": {"layers": 1, "heads": 2},
    "ck": {"filters": 6},
}
FUSED: dict[str, dict[str, int]] = {
    **{name: {"EmbedLayerNormalization": 1, "Attention": 2, "SkipLayerNormalization": 4, "BiasGelu": 2} for name in NAMES},
    "late_transformer": {"EmbedLayerNormalization": 2, "Attention": 4},  # once for the query and once for the passage
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


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., CrossEncoder]) -> Path:
    return once(tmp_path_factory, "token-encoder", tiny().encoder.save_pretrained)


def a_model(encoder: Path, name: str, aggregator: str | None = None) -> RankerModule:
    """Weights that spread its logits."""
    torch.manual_seed(0)
    learned = {"name": aggregator} if aggregator else None
    model = new_ranker({"name": name, **KINDS[name]}, str(encoder), attention="eager", aggregator=learned).eval()
    with torch.no_grad():
        for label, weight in model.named_parameters():
            if weight.dim() > 1 and not label.startswith(("encoder", "table", "saturation")):
                weight.mul_(3)
    return model


def a_batch(rows: int, length: int, query: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Ids, types and mask: queries grow shorter from row to row, to nothing, and so do the sequences."""
    ids = np.random.default_rng(rows).integers(1000, 1030, (rows, length))
    place, number = np.arange(length), np.arange(rows)[:, None]
    mask = (place < np.maximum(length - 2 * number, 4)).astype(np.int64)
    types = (place >= np.maximum(query - 3 * number, 0) + 2) * mask
    return ids * mask, types, mask


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("name", "aggregator"), [*((name, None) for name in KINDS), ("late_transformer", "attention")], ids=str)
@torch.inference_mode()
def test_a_graph_says_what_the_model_says_in_any_shape(
    tmp_path: Path, encoder: Path, name: str, aggregator: str | None, provider: Provider
) -> None:
    """Logits and states of sequences that PyTorch was not traced with, some longer than windows and regions."""
    model = a_model(encoder, name, aggregator)
    export_ranker(model, tmp_path / "model.onnx")
    assert FUSED.get(name, {}).items() <= fused_nodes(onnx.load(str(tmp_path / "model.onnx"))).items()
    session = Session(tmp_path / "model.onnx", provider, 1, Precision.FP32)
    assert session.width == (1 + model.hidden_size if model.combines else None)
    for rows, length, query in ((1, 7, 2), (3, 40, 12), (4, 130, 9), (2, 16, 5)):
        batch = a_batch(rows, min(length, model.max_length), query)
        expected = model.outputs(*map(torch.from_numpy, batch)).numpy()
        np.testing.assert_allclose(session.score(*batch), expected, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("name", [*COMBINING, "late_transformer"])
@torch.inference_mode()
def test_passages_are_combined_as_pytorch_does(tmp_path: Path, encoder: Path, name: str) -> None:
    """States of real sequences, for one to five documents of one to six passages, padding in between."""
    model = a_model(encoder, name, "attention" if name == "late_transformer" else None)
    export_aggregator(model, tmp_path / "aggregator.onnx")
    graph = AggregatorSession(tmp_path / "aggregator.onnx", Provider.CPU, 1)
    states = model.states(*map(torch.from_numpy, a_batch(6, 60, 6)))
    for docs, passages in ((1, 1), (5, 2), (2, 6)):
        given = states[torch.arange(docs * passages) % 6].view(docs, passages, -1)
        mask = torch.arange(passages) <= torch.arange(docs)[:, None]
        expected = model.combine(given, mask).numpy()
        np.testing.assert_allclose(graph.combine(given.numpy(), mask.numpy()), expected, atol=1e-3, rtol=1e-5)


def test_an_encoder_of_another_architecture_is_refused(tmp_path: Path, encoder: Path) -> None:
    model = a_model(encoder, "cedr_knrm")
    for layer in model.get_submodule("encoder.encoder.layer"):  # type: ignore[union-attr]
        layer.intermediate.intermediate_act_fn = torch.nn.ReLU()
    with pytest.raises(ExportError, match=r"not fused \(BiasGelu 0 of 2\).* export an encoder of BERT's architecture"):
        export_ranker(model, tmp_path / "model.onnx")


def test_padding_cannot_be_removed_from_this_graph(tmp_path: Path, save_run: Callable[..., Path], encoder: Path) -> None:
    run = save_run(tmp_path / "run", a_model(encoder, "neural_model1"), **PARTS)
    options = Options(provider=Provider.CPU, queries=1, depth=1, variants=[VariantKind.FP16])
    with pytest.raises(ExportError, match="padding cannot be removed"):
        export_run(run, tmp_path / "bundle", options)
