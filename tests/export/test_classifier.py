"""Graphs of checkpoints beside PyTorch; every family's is held to transformers in test_families_served."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export import ExportError
from export.classifier import export_classifier
from export.families import export_ranker
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from training.model.classifier import Classifier
from training.model.transformer_ranker import unchanged


@pytest.fixture(scope="module")
def bert(checkpoint: Callable[[str], Path]) -> Classifier:
    return Classifier.load(checkpoint("bert"), attention="eager")


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet"])
def test_a_graph_says_what_the_model_says_in_any_shape(checkpoint: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    model = Classifier.load(checkpoint(name), attention="eager")
    fused = export_ranker(model, tmp_path / "model.onnx")
    assert fused["SkipLayerNormalization"] >= 2
    assert model.masks is unchanged, "as before"
    session = Session(tmp_path / "model.onnx", Provider.CPU, 1)
    for rows, length in ((1, 7), (3, 40)):
        ids = np.random.default_rng(rows).integers(5, 300, (rows, length))
        mask = np.ones_like(ids)
        mask[0, length - 2 :] = 0
        types = np.zeros_like(ids)
        types[:, 4:] = model.typed
        ids[mask == 0] = model.module.config.pad_token_id
        with torch.inference_mode():
            expected = model.outputs(*(torch.from_numpy(array) for array in (ids, types, mask))).numpy()
        np.testing.assert_allclose(session.score(ids, types, mask), expected, atol=1e-4)


def test_a_whole_bert_computes_cls_alone_in_its_last_layer(bert: Classifier, tmp_path: Path) -> None:
    assert export_classifier(bert, tmp_path / "model.onnx")["Attention"] == 2
    graph = onnx.load(str(tmp_path / "model.onnx")).graph
    assert sum("cls_position" in node.input for node in graph.node) == 2
    assert [given.name for given in graph.input] == ["input_ids", "token_type_ids", "attention_mask"]


def test_an_architecture_that_cannot_be_traced_is_one_line(
    bert: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such\noperator")

    monkeypatch.setattr("export.graph.torch.onnx.export", fail)
    with pytest.raises(ExportError, match=r"the architecture bert cannot be traced \(no such operator\)"):
        export_classifier(bert, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
