"""Found in review; each test names the module whose tests it belongs to."""

import argparse
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from keyblock.pipeline import Pipeline
from training.collections.collection import Collection
from training.commands.calibrate import main as calibrate_main
from training.evaluation.ranking import CHOOSER, load_chooser, load_run_pipeline
from training.examples.sampling import Preparation
from training.learning.dev import DevSet
from training.learning.loop import make_optimizer
from training.learning.train import begin, train
from training.models.cross_encoder import CrossEncoder
from training.recipe import Optimizer, Recipe, RecipeError


def test_the_model_that_counts_is_calibrated(run_copy: Path, toy_path: Path) -> None:
    """training.commands.calibrate: kept scores are those of RUN/best, and a run of BeST has no checkpoint of its own."""
    (run_copy / "checkpoint").rename(run_copy / "best")
    command = ["--run", str(run_copy), "--collection", str(toy_path), "--queries", "2", "--depth", "4"]
    assert calibrate_main(command) == 0
    head = run_copy / "best" / "head.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(head).items()}, head)
    assert calibrate_main(command) == 0
    shutil.copytree(run_copy / "best", run_copy / CHOOSER)
    assert calibrate_main(command) == 0
    assert len(list((run_copy / "dev-scores").iterdir())) == 3


def test_calibration_keeps_the_runs_own_budget(run_copy: Path, toy_path: Path) -> None:
    """training.commands.calibrate."""
    own = load_run_pipeline(run_copy).config.packing.budget
    assert calibrate_main(["--run", str(run_copy), "--collection", str(toy_path), "--queries", "2", "--depth", "4"]) == 0
    packing = load_run_pipeline(run_copy).config.packing
    assert (packing.budget, packing.budget_range) == (own, (own, own)) == (80, (80, 80))


@pytest.mark.parametrize("pretrained", [False, True])
def test_pretrained_layers_of_an_aggregator_learn_as_the_encoder_does(
    tiny_backbone: Path, tmp_path: Path, pretrained: bool
) -> None:
    """training.learning.loop: at the rate of a fresh head they would forget what they know."""
    module: dict[str, Any] = {"name": "transformer", "heads": 2, "pretrained": str(tiny_backbone) if pretrained else None}
    model = CrossEncoder.from_backbone(str(tiny_backbone), aggregator=module)
    groups = make_optimizer(model, Optimizer(encoder_lr=1e-5, head_lr=1e-3)).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert rates.keys() == {id(p) for p in model.parameters()}
    assert model.aggregator is not None
    assert {rates[id(p)] for p in model.aggregator.layers.parameters()} == {1e-5 if pretrained else 1e-3}  # type: ignore[operator, union-attr]
    assert {rates[id(p)] for p in (model.aggregator.cls, *model.head.parameters())} == {1e-3}


def test_training_on_gold_passages_asks_for_them(make_recipe: Callable[..., Recipe], toy_copy: Path, tmp_path: Path) -> None:
    """training.learning.train: without them every block would be drawn at random, and nothing would say so."""
    (toy_copy / "spans.jsonl.gz").unlink()
    with pytest.raises(RecipeError, match="toy has no gold passages"):
        train(make_recipe(examples="gold"), [Collection(toy_copy)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_chooser_of_a_try_that_never_began_is_not_kept(
    make_recipe: Callable[..., Recipe], toy: Collection, tiny_backbone: Path, tmp_path: Path
) -> None:
    """training.learning.train."""
    CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path / CHOOSER)
    begin(make_recipe(), [toy], str(tiny_backbone), tmp_path)
    assert load_chooser(tmp_path) is None


class Indifferent(nn.Module):
    """A ranker that finds all documents alike."""

    def __init__(self) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(()))

    def outputs(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.zero * attention_mask.sum(1)


def test_dev_ranks_documents_without_a_block_last(
    toy: Collection, toy_pipeline: Pipeline, make_recipe: Callable[..., Recipe]
) -> None:
    """training.learning.dev: as evaluation and the service do."""

    def prepare(document: Any) -> Any:
        return toy_pipeline.prepare_document(document.text if document.doc_id.endswith("-3") else "", document.title)

    dev = DevSet.build({"toy": Preparation(toy, toy_pipeline, prepare)}, make_recipe())
    assert dev.measure(Indifferent())["toy"]["RR@10"] == 1.0  # type: ignore[arg-type]  # its relevant ones stand last


def test_segments_are_kept_after_a_stop_between_record_and_segments(tmp_path: Path) -> None:
    """benchmarks.systems."""
    file = Path(__file__).parents[2] / "benchmarks" / "systems.py"
    spec = importlib.util.spec_from_file_location("systems", file)
    assert spec is not None
    assert spec.loader is not None
    systems = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(systems)
    options = argparse.Namespace(records=tmp_path)
    assert [systems.segments_missing(recipe, options) for recipe in ("keyb-bm25", "maxp", "best")] == [False, True, True]
    (tmp_path / systems.SEGMENTS).write_text(json.dumps([{"iteration": "MaxP", "P@1": {}}]), encoding="utf-8")
    assert [systems.segments_missing(recipe, options) for recipe in ("maxp", "best")] == [False, True]
