"""Graphs of checkpoints beside PyTorch; every family's is held to transformers in test_families_served."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from transformers import AutoConfig, AutoModel

from export import ExportError
from export.families import export_classifier, export_cross_encoder, export_ranker
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from training.model.classifier import Classifier
from training.model.cross_encoder import CrossEncoder


@pytest.fixture(scope="module")
def bert(checkpoint: Callable[[str], Path]) -> Classifier:
    return Classifier.load(checkpoint("bert"), attention="eager")


def assert_says_the_same(model: Classifier | CrossEncoder, path: Path) -> None:
    """In batches of two shapes."""
    session = Session(path, Provider.CPU, 1)
    for rows, length in ((1, 7), (3, 40)):
        ids = np.random.default_rng(rows).integers(5, 300, (rows, length))
        mask = np.ones_like(ids)
        mask[0, length - 2 :] = 0
        types = np.zeros_like(ids)
        types[:, 4:] = model.typed
        ids[mask == 0] = model.transformer.config.pad_token_id
        with torch.inference_mode():
            expected = model.outputs(*(torch.from_numpy(array) for array in (ids, types, mask))).numpy()
        np.testing.assert_allclose(session.score(ids, types, mask), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "pooling"), [("deberta", "cls"), ("mpnet", "cls"), ("modernbert-cls", "cls"), ("roberta", "mean")]
)
def test_a_cross_encoder_that_is_trained_here_is_exported_on_other_encoders(
    checkpoint: Callable[[str], Path], tmp_path: Path, name: str, pooling: str
) -> None:
    """Some of these encoders train, export and serve in test_round_trip, too."""
    model = CrossEncoder.from_backbone(str(checkpoint(name)), attention="eager", pooling=pooling).eval()
    torch.nn.init.normal_(model.head.weight)
    export_ranker(model, tmp_path / "model.onnx")
    assert_says_the_same(model, tmp_path / "model.onnx")


def test_what_no_graph_computes_is_refused_first(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that says what can be exported, before anything is traced."""
    monkeypatch.setattr("export.graph.torch.onnx.export", None)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 200}
    longformer = CrossEncoder(AutoModel.from_config(AutoConfig.for_model("longformer", **sizes)))
    with pytest.raises(ExportError, match="cross-encoder of the architecture longformer cannot be exported; one of albert, bert, "):
        export_cross_encoder(longformer, tmp_path / "model.onnx")
    marking = CrossEncoder.from_backbone(str(checkpoint("roberta")), marks=8)
    with pytest.raises(ExportError, match="a roberta that marks tokens cannot be exported, only a bert"):
        export_cross_encoder(marking, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


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
