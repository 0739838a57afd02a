"""Graphs without fused operators: the kernel-pooling student beside PyTorch, in any shape."""

from pathlib import Path

import numpy as np
import pytest
import torch

from export.families import export_ranker
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from training.models.ck import Ck


@pytest.mark.parametrize("window", [1, 3])
@torch.inference_mode()
def test_a_graph_says_what_the_model_says_in_any_shape(tmp_path: Path, window: int) -> None:
    torch.manual_seed(0)
    model = Ck(torch.randn(50, 8), window, 6).eval()
    torch.nn.init.normal_(model.head.weight)
    assert export_ranker(model, tmp_path / "model.onnx") == {}
    session = Session(tmp_path / "model.onnx", Provider.CPU, 1)
    for rows, length, query in ((1, 7, 1), (3, 40, 12), (2, 25, 0)):
        ids = np.random.default_rng(rows).integers(0, 50, (rows, length))
        types, mask = np.zeros_like(ids), np.ones_like(ids)
        types[:, query + 2 :], mask[0, length - 2 :] = 1, 0
        types *= mask
        expected = model(*(torch.from_numpy(array) for array in (ids, types, mask))).numpy()
        np.testing.assert_allclose(session.score(ids, types, mask), expected, atol=1e-3)
