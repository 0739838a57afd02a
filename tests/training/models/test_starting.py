"""A bundle's graph gives back the PyTorch model that it was made from."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from keyblock.bundle import load_bundle
from keyblock.runtime.batching import score_all
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from training.data.examples import Preparation
from training.evaluate.scoring import score
from training.model.cross_encoder import CrossEncoder
from training.model.starting import (
    TOKENIZER_FILE,
    check_tokenizer,
    check_weights,
    graph_weights,
    read_ranker,
    start_at_cls,
    start_from,
    weights_digest,
)

Change = Callable[[dict[str, Any]], object]
DEFAULT = Path(__file__).parents[3] / "models" / "default"


def test_the_embedded_bundle_is_the_same_model_in_pytorch(backbone: Path, toy: object) -> None:
    bundle = load_bundle(DEFAULT)
    preparation = Preparation(toy, bundle.pipeline)  # type: ignore[arg-type]
    packed = [preparation.pack("river?", f"{topic}-{n}", 128) for topic in ("river", "stone") for n in range(4)]
    model = read_ranker(DEFAULT, str(backbone))
    served = score_all(Session(bundle.graph_path, Provider.CPU), packed, bundle.tokenizer.pad_id)
    np.testing.assert_allclose(score(model, packed, bundle.tokenizer.pad_id, bf16=False), served, atol=1e-4)
    assert np.ptp(served) > 0.1


def test_every_weight_is_found_those_of_the_marker_too(backbone: Path) -> None:
    model = CrossEncoder.from_backbone(str(backbone), marks=64)
    weights = graph_weights(onnx.load(str(load_bundle(DEFAULT).graph_path)))
    assert model.marker is not None
    marker = {f"marker.{name}": value.shape for name, value in model.marker.state_dict().items()}
    assert weights.keys() == {*model.encoder.state_dict(), "head.weight", "head.bias", *marker}
    assert {name: weights[name].shape for name in marker} == marker


@pytest.mark.parametrize("start", ["cls", "random"])
def test_a_transformer_over_passages_may_begin_with_the_word_cls(tiny_backbone: Path, start: str) -> None:
    aggregator = {"name": "transformer", "heads": 2, "layers": 1, "start": start}
    model = CrossEncoder.from_backbone(str(tiny_backbone), aggregator=aggregator)
    start_at_cls(model, str(tiny_backbone))
    cls = model.encoder.embeddings.word_embeddings.weight[101]
    assert model.aggregator is not None
    assert torch.equal(model.aggregator.cls, cls) == (start == "cls")
    assert model.aggregator.cls.requires_grad


def test_another_architecture_is_one_clear_error(tiny_backbone: Path) -> None:
    with pytest.raises(ValueError, match="not of the backbone's architecture") as caught:
        start_from(CrossEncoder.from_backbone(str(tiny_backbone)), DEFAULT)
    assert len(str(caught.value)) < 600  # the first weights that differ, not all of them


def test_the_same_weights_in_other_heads_are_another_architecture(backbone: Path) -> None:
    model = CrossEncoder.from_backbone(str(backbone))
    model.encoder.config.num_attention_heads = 6
    with pytest.raises(ValueError, match=r"architecture.*: 12 attention heads where the backbone has 6"):
        start_from(model, DEFAULT)


def with_tokenizer(path: Path, backbone: Path, change: Change) -> Path:
    """A directory with the backbone's tokenizer, changed."""
    tokenizer = json.loads((backbone / TOKENIZER_FILE).read_text(encoding="utf-8"))
    change(tokenizer)
    (path / TOKENIZER_FILE).write_text(json.dumps(tokenizer), encoding="utf-8")
    return path


def swap(tokenizer: dict[str, Any]) -> None:
    words = tokenizer["model"]["vocab"]
    words["river"], words["city"] = words["city"], words["river"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (swap, "another vocabulary"),
        (lambda t: t["normalizer"].update(lowercase=False), "another normalizer"),
    ],
)
def test_another_tokenizer_is_refused(tmp_path: Path, backbone: Path, change: Change, said: str) -> None:
    """The shapes of the weights are the same, so nothing else would notice."""
    with pytest.raises(ValueError, match=re.escape(f"init {tmp_path}: its tokenizer is not that of the backbone")) as caught:
        check_tokenizer("init", with_tokenizer(tmp_path, backbone, change), str(backbone))
    assert f"({said})" in str(caught.value)
    assert str(caught.value).endswith(
        "so its model would see ids of other words; name a run or bundle of this backbone, or take its backbone"
    )


def test_a_tokenizer_that_pads_and_truncates_is_the_same(tmp_path: Path, backbone: Path) -> None:
    changed = with_tokenizer(tmp_path, backbone, lambda t: t.update(truncation=None, padding=None))
    check_tokenizer("init", changed, str(backbone))
    check_tokenizer("selector_run", DEFAULT, str(backbone))


def test_a_directory_without_a_tokenizer_is_no_run(tmp_path: Path, backbone: Path) -> None:
    with pytest.raises(ValueError, match=r"selector_run .*: has no tokenizer\.json, so it is neither a run"):
        check_tokenizer("selector_run", tmp_path, str(backbone))
    (tmp_path / TOKENIZER_FILE).write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json: damaged, no tokenizer"):
        check_tokenizer("selector_run", tmp_path, str(backbone))


def test_other_weights_than_the_named_ones_are_refused(toy_run: Path, run_copy: Path) -> None:
    """A path says where a start lies; its hash says what it was."""
    graph = load_bundle(DEFAULT).graph_path
    digest = hashlib.sha256(graph.read_bytes()).hexdigest()
    assert weights_digest(DEFAULT) == weights_digest(Path(f"models/default@{digest[:8]}")) == digest
    check_weights("init", f"models/default@{digest[:12]}")
    assert weights_digest(toy_run) == weights_digest(run_copy)
    before = weights_digest(run_copy)[:12]
    check_weights("init", f"{run_copy}@{before}")
    model = CrossEncoder.load(run_copy / "checkpoint")
    torch.nn.init.zeros_(model.head.weight)
    model.save(run_copy / "checkpoint")
    check_weights("init", str(run_copy))
    with pytest.raises(ValueError, match=rf"init .*: holds other weights \([0-9a-f]+\) than those .* begins with \({before}\)"):
        check_weights("init", f"{run_copy}@{before}")


def test_a_graph_of_others_is_one_clear_error() -> None:
    graph = onnx.helper.make_graph([], "empty", [], [])
    with pytest.raises(ValueError, match="not laid out"):
        graph_weights(onnx.helper.make_model(graph))
