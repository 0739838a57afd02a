"""The graphs of a system, and what its options say of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export import ExportError, cli, import_cli
from export.families import export_aggregator, export_ranker
from export.importing import measured_pace
from keyblock.bundle import load_bundle
from keyblock.runtime.aggregator import AggregatorSession
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from tests.training.models.families import Bag
from training.model.cross_encoder import CrossEncoder


def test_a_family_without_a_graph_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"models of the family bag cannot be exported; those of cross_encoder, .* can"):
        export_ranker(Bag(10, 2), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_an_export_halves_the_weights_and_an_import_keeps_them() -> None:
    for parser, given, precision in ((cli.parser(), "run", "fp16-weights"), (import_cli.parser(), "model", "fp32")):
        options = parser.parse_args([given, "--out", "bundle"])
        assert options.precision == precision
        assert (options.provider, options.variant, options.overwrite) == (Provider.AUTO, [], False)


DEFAULT = Path(__file__).parents[2] / "models" / "default"


def test_the_pace_is_that_of_one_length_on_one_provider() -> None:
    model = GraphModel.open(load_bundle(DEFAULT), Provider.CPU, 1)
    short, long = (measured_pace(model, length) for length in (32, 256))
    assert short["sequences_per_second"] > long["sequences_per_second"] > 0
    assert (long["tokens"], long["provider"], long["precision"], long["threads"]) == (256, "cpu", "fp32", 1)


Tiny = Callable[..., CrossEncoder]
DESCRIPTIONS: list[dict[str, Any]] = [
    {"name": "max"},
    {"name": "attention"},
    {"name": "cnn"},
    {"name": "transformer", "heads": 2, "layers": 1, "width": 20, "positions": 40},
]


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=str)
def test_logits_are_pytorchs_for_any_number_of_documents_and_passages(
    tmp_path: Path, tiny: Tiny, description: dict[str, Any]
) -> None:
    model = tiny(aggregator=description)
    export_aggregator(model, tmp_path / "aggregator.onnx")
    session = AggregatorSession(tmp_path / "aggregator.onnx", threads=1)
    random = np.random.default_rng(0)
    for counts in ((1,), (5, 0, 2), (16, 16, 3), (40, 1)):
        mask = np.arange(max(counts)) < np.asarray(counts)[:, None]
        states = random.normal(size=(*mask.shape, 32)).astype(np.float32)
        with torch.inference_mode():
            expected = model.combine(torch.from_numpy(states), torch.from_numpy(mask)).numpy()
        np.testing.assert_allclose(session.combine(states, mask), expected, atol=1e-4)
        garbage = np.where(mask[:, :, None], states, 1e30).astype(np.float32)
        np.testing.assert_allclose(session.combine(garbage, mask), expected, atol=1e-4)


def test_a_model_without_an_aggregator(tmp_path: Path, tiny: Tiny) -> None:
    with pytest.raises(ValueError, match="this model has no aggregator"):
        export_aggregator(tiny(), tmp_path / "aggregator.onnx")
