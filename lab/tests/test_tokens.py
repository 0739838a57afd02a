"""Rankers that compare tokens: their graphs beside PyTorch, and served."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from export import ExportError
from export.exporter import export_run
from export.options import Options, VariantKind, WeightPrecision
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from lab.export import export_tokens
from lab.models.tokens import TokenRanker
from lab.tests.test_token_ranker import NAMES
from tests.export.ranking import assert_ranks_alike
from tests.support.once import once
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker

Tiny = Callable[..., CrossEncoder]
PARTS = {
    "segmenter": {"name": "cogltx", "block_tokens": 30},
    "packing": {"query_tokens": 12, "budget": 64, "budget_range": (64, 64)},
    "aggregator": {"name": "states", "passages": 3},
}
FEW = Options(precision=WeightPrecision.FP32, provider=Provider.CPU, queries=3, depth=3)


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


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_ranks_as_the_run_did(tmp_path: Path, save_run: Callable[..., Path], encoder: Path, name: str) -> None:
    """Documents of several passages, through the library."""
    run = save_run(tmp_path / "run", a_model(encoder, name), **PARTS)
    bundle = export_run(run, tmp_path / "bundle", FEW)
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
