"""Repositories that have a graph of their own and no weights."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from export import ExportError
from export.checkpoint import read_checkpoint
from export.graph import trace
from export.importing import import_model
from export.onnx_source import GivenGraph, find_graph
from export.options import ImportOptions
from keyblock.runtime.providers import Provider
from tests.support.checkpoints import save_checkpoint
from tests.support.once import once
from training.model.classifier import Classifier

FEW = ImportOptions(pairs=16, provider=Provider.CPU)


class Labels(torch.nn.Module):
    """A checkpoint with logits of shape (batch, labels), as repositories publish its graph."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        wide = (1.0 - mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1).float()) * -10_000.0
        logits: torch.Tensor = self.model.module(input_ids=ids, token_type_ids=types, attention_mask=wide).logits
        return logits


def publish(folder: Path, labels: int) -> None:
    """Write a repository with onnx/model.onnx beside its weights."""
    model = Classifier.load(save_checkpoint("bert", folder, labels=labels), attention="eager")
    (folder / "onnx").mkdir()
    ids = torch.arange(5, 37).reshape(2, 16)
    example = dict(zip(model.INPUTS, (ids, torch.zeros_like(ids), torch.ones_like(ids)), strict=True))
    trace(Labels(model), example, folder / "onnx" / "model.onnx", "logits")


@pytest.fixture
def published(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Copies such a repository of a model with so many labels; each is made once."""

    def copied(labels: int) -> Path:
        made = once(tmp_path_factory, f"published/{labels}", lambda folder: publish(folder, labels))
        return Path(shutil.copytree(made, tmp_path / "model"))

    return copied


@pytest.fixture
def only_graph(published: Callable[[int], Path]) -> tuple[Path, Path]:
    """Such a repository without weights, and its graph."""
    source = published(1)
    (source / "model.safetensors").unlink()
    return source, source / "onnx" / "model.onnx"


@pytest.mark.parametrize("labels", [1, 2])
def test_a_graph_without_weights_is_served_as_it_is(published: Callable[[int], Path], tmp_path: Path, labels: int) -> None:
    source = published(labels)
    assert find_graph(source) is None, "weights are there, and come first"
    pairs = [("a bridge", "The river flooded the bridge."), ("why", "Bread.")]
    expected = read_checkpoint(str(source), FEW).logits(pairs)
    (source / "model.safetensors").unlink()
    assert find_graph(source) == source / "onnx" / "model.onnx"
    np.testing.assert_allclose(read_checkpoint(str(source), FEW).logits(pairs), expected, atol=1e-4)
    manifest = import_model(str(source), tmp_path / "bundle", FEW).manifest
    assert manifest.provenance["import"]["from"] == "its own ONNX graph"
    assert manifest.quality["certificate"]["logits"]["max"] <= 1e-3
    assert manifest.graph.max_length == 512


def test_positions_behind_the_padding_id(checkpoint: Callable[[str], Path], only_graph: tuple[Path, Path]) -> None:
    config = read_checkpoint(str(checkpoint("roberta")), FEW).config
    _, path = only_graph
    assert GivenGraph(path, config).max_length == 512
    assert GivenGraph(path, config).vocabulary_size == config.vocab_size


def of_pixels(path: Path) -> None:
    given = [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["b", "l"]) for name in ("input_ids", "pixels")]
    node = helper.make_node("Add", ["input_ids", "pixels"], ["logits"])
    output = helper.make_tensor_value_info("logits", onnx.TensorProto.INT64, ["b", "l"])
    onnx.save(helper.make_model(helper.make_graph([node], "g", given, [output])), str(path))


def of_states(path: Path) -> None:
    graph = onnx.load(str(path))
    states = helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["batch", "length", 32])
    graph.graph.output[0].CopyFrom(states)
    onnx.save(graph, str(path))


def without_weights(path: Path) -> None:
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    read_checkpoint(str(path.parent.parent), FEW)
    path.with_name("model.onnx_data").unlink()


def cut_weights(path: Path) -> None:
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    os.truncate(path.with_name("model.onnx_data"), 1000)


def of_git_lfs(path: Path) -> None:
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def half(path: Path) -> None:
    path.write_bytes(b"\x08\x09\x12\x07pyt")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (of_pixels, "has the inputs input_ids, pixels; a cross-encoder's are input_ids"),
        (of_states, "its output last_hidden_state has 3 dimensions where logits have"),
        (without_weights, r"its weights are in model\.onnx_data, which is missing"),
        (cut_weights, r"its weights are in model\.onnx_data, which is missing, or not whole; copy it again"),
        (of_git_lfs, r"model\.onnx: is no whole ONNX graph \(.*\); copy it again"),
        (half, r"model\.onnx: is no whole ONNX graph \(.*\); copy it again"),
    ],
)
def test_a_file_that_is_no_cross_encoders_graph(only_graph: tuple[Path, Path], spoil: Callable[[Path], None], problem: str) -> None:
    source, path = only_graph
    spoil(path)
    with pytest.raises(ExportError, match=problem):
        read_checkpoint(str(source), FEW)


def test_a_graph_that_onnx_runtime_cannot_run_is_one_line(only_graph: tuple[Path, Path]) -> None:
    """As if a newer exporter wrote it."""
    source, path = only_graph
    graph = onnx.load(str(path))
    graph.graph.node[0].op_type = "Unheard"
    onnx.save(graph, str(path))
    with pytest.raises(ExportError, match=r"model\.onnx: ONNX Runtime .* cannot run it \("):
        read_checkpoint(str(source), FEW).logits([("a bridge", "Bread.")])
