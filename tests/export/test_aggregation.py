from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from export.graph import export_aggregator
from keyblock.runtime.aggregator import AggregatorSession
from training.model.cross_encoder import CrossEncoder

Tiny = Callable[..., CrossEncoder]
DESCRIPTIONS: list[dict[str, Any]] = [
    {"name": "max"},
    {"name": "mean"},
    {"name": "attention"},
    {"name": "cnn"},
    {"name": "transformer", "heads": 4},
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


def test_only_the_aggregator_and_the_head_are_in_it(tmp_path: Path, tiny: Tiny) -> None:
    export_aggregator(tiny(aggregator={"name": "attention"}), tmp_path / "aggregator.onnx")
    weights = onnx.load(str(tmp_path / "aggregator.onnx")).graph.initializer
    assert sum(int(np.prod(tensor.dims)) for tensor in weights if tensor.data_type == onnx.TensorProto.FLOAT) <= 32 + 32 + 4


def test_the_model_stays_as_it_was(tmp_path: Path, tiny: Tiny) -> None:
    model = tiny(aggregator={"name": "cnn"}).train()
    export_aggregator(model, tmp_path / "aggregator.onnx")
    assert not any(module.training for module in model.modules())


def test_a_model_without_an_aggregator(tmp_path: Path, tiny: Tiny) -> None:
    with pytest.raises(ValueError, match="this model has no aggregator"):
        export_aggregator(tiny(), tmp_path / "aggregator.onnx")
