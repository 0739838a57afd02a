"""A graph with a marker against the model in PyTorch; its first output is that of the graph without."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export import ExportError
from export.families import add_marks, export_cross_encoder
from export.last_attention import compute_cls_alone
from keyblock.packing import Packed
from keyblock.runtime.batching import mark_all, score_all
from keyblock.runtime.session import Session
from keyblock.text.tokenizer import Tokenizer
from training.evaluate.scoring import TorchModel
from training.model.cross_encoder import CrossEncoder, Marker
from training.model.starting import graph_weights

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def model(tiny: Callable[..., CrossEncoder], tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    """Saved and loaded, as an export meets it."""
    model, path = tiny(), tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    model.marker = Marker(model.hidden_size, 8)
    torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)
    model.save(path)
    return CrossEncoder.load(path, attention="eager")


@pytest.fixture(scope="module", params=[False, True], ids=["whole last attention", "for [CLS] alone"])
def graph(model: CrossEncoder, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    path = tmp_path_factory.mktemp("marks") / "model.onnx"
    export_cross_encoder(model, path)
    if request.param:
        narrowed = onnx.load(str(path))
        compute_cls_alone(narrowed)
        onnx.save(narrowed, str(path))
    return path


@pytest.fixture(scope="module")
def in_pytorch(model: CrossEncoder, tokenizer: Tokenizer) -> TorchModel:
    return TorchModel(model, tokenizer)


def sequences(lengths: list[int]) -> list[Packed]:
    return [Packed(RNG.integers(5, 40, n).astype(np.int32), 4, np.zeros(1, np.intp)) for n in lengths]


def test_marks_are_those_of_pytorch_and_padding_changes_none(model: CrossEncoder, graph: Path) -> None:
    """Each sequence alone in PyTorch; in batches of several lengths in the graph."""
    session, packed = Session(graph, "cpu", 1), sequences([9, 40, 17, 70, 12])
    outputs, marks = mark_all(session, packed, 0, 1)
    assert marks is not None
    assert outputs == pytest.approx(score_all(session, packed, 0, 1), abs=0)
    for one, found, logit in zip(packed, marks, outputs, strict=True):
        ids = torch.from_numpy(one.ids.astype(np.int64))[None]
        types = (torch.arange(ids.shape[1]) >= one.split).long()[None]
        with torch.no_grad():
            states, expected = model.marked(ids, types, torch.ones_like(ids))
            assert logit == pytest.approx(model.scores(states).item(), abs=1e-4)
        assert found == pytest.approx(expected[0].numpy(), abs=1e-4)
    assert float(np.std(np.concatenate(marks))) > 0.001  # the tokens differ, so the comparison says something


def test_pytorch_marks_in_batches_as_it_does_alone(in_pytorch: TorchModel) -> None:
    packed = sequences([9, 40, 17])
    together, alone = in_pytorch.mark(packed), [in_pytorch.mark([one]) for one in packed]
    assert together.marks is not None
    for found, one in zip(together.marks, alone, strict=True):
        assert one.marks is not None
        assert found == pytest.approx(one.marks[0], abs=1e-5)
    assert together.outputs == pytest.approx(np.concatenate([one.outputs for one in alone]), abs=1e-5)


def test_the_weights_are_read_back(model: CrossEncoder, graph: Path) -> None:
    assert model.marker is not None
    weights = graph_weights(onnx.load(str(graph)))
    for name, value in model.marker.state_dict().items():
        torch.testing.assert_close(weights[f"marker.{name}"], value)


def test_a_graph_that_is_not_fused_is_refused() -> None:
    with pytest.raises(ExportError, match="no fused attention"):
        add_marks(onnx.ModelProto(), Marker(4, 2))
