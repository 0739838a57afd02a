import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from export import ExportError
from export.exporter import SAMPLE
from export.families import export_cross_encoder
from export.verification import Dev, check_parity, check_ranking, compare, logit_differences
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel
from keyblock.runtime.session import Session
from keyblock.text.tokenizer import Tokenizer
from training.data.collection import Collection
from training.evaluate.scoring import TorchModel
from training.model.cross_encoder import CrossEncoder


@pytest.fixture(scope="module")
def graphs(fp32: Path, tokenizer: Tokenizer) -> GraphModel:
    return GraphModel(tokenizer, Session(fp32, "cpu", threads=1))


@pytest.fixture
def torch_model(model: CrossEncoder, tokenizer: Tokenizer) -> TorchModel:
    """In fp32; a test may change its weights."""
    return TorchModel(copy.deepcopy(model), tokenizer, bf16=False)


@pytest.fixture
def dev(pipeline: Pipeline) -> Dev:
    """With one budget, so that a check takes one pass."""
    packing = pipeline.config.packing.model_copy(update={"budget": 64, "budget_range": (64, 64)})
    narrow = Pipeline(pipeline.config.model_copy(update={"packing": packing}), pipeline.tokenizer, pipeline.frequencies)
    return Dev.build(Collection(SAMPLE), narrow, queries=5, depth=4)


def test_dev_takes_a_sample_of_queries_and_their_first_candidates(dev: Dev, torch_model: TorchModel) -> None:
    assert [len(documents) for documents in dev.candidates.values()] == [4] * 5
    every, asked = dev.selections(torch_model, 64, 1000)
    assert (len(every), asked) == (20, [])
    few, _ = dev.selections(torch_model, 64, 5)
    assert len(few) == 5
    assert len({tuple(selection.packed.ids[: selection.packed.split]) for selection in few}) > 1, "of several queries"
    assert all(len(selection.packed.ids) <= 64 for selection in few)


def test_dev_counts_what_a_selector_asks(dev: Dev, torch_model: TorchModel) -> None:
    parts = {"selector": {"name": "learned"}, "aggregator": {"name": "max", "passages": 2}}
    plain = dev.preparation.pipeline
    config = PipelineConfig.model_validate(
        plain.config.model_dump() | parts | {"segmenter": {"name": "cogltx", "block_tokens": 20}}
    )
    binb = Dev.build(Collection(SAMPLE), Pipeline(config, plain.tokenizer, plain.frequencies), queries=5, depth=4)
    every, asked = binb.selections(torch_model, 64, 1000)
    assert len(every) == 20
    assert len(asked) == sum(len(selection.scores) for selection in every)
    few, asked = binb.selections(torch_model, 64, 10)
    assert len(asked) + sum(len(selection.sequences) for selection in few) >= 10 > len(few)


def test_parity_holds_for_the_model_that_was_exported_and_for_no_other(
    torch_model: TorchModel, graphs: GraphModel, dev: Dev
) -> None:
    parity = check_parity(torch_model, graphs, dev)
    assert parity["pairs"] == 20
    assert 0 < parity["max"] < 1e-4
    for moved, problem in ((0.002, r"by up to 0\.002 on sample \(0\.001 is allowed\)"), (float("nan"), "up to nan")):
        with torch.no_grad():
            torch_model.model.head.bias += moved
        with pytest.raises(ExportError, match=problem):
            check_parity(torch_model, graphs, dev)


def test_graphs_compared_with_themselves_move_nothing(graphs: GraphModel, dev: Dev) -> None:
    found = compare(graphs, graphs, dev)
    assert found["logits"] == {"mean": 0, "p99": 0, "max": 0, "pairs": 20}
    assert (found["queries"], found["top1_kept"]) == (5, 1)
    assert found["fp32"] == found["served"]
    assert set(found["fp32"]) == {"RR@10", "nDCG@10"}


def test_another_model_is_seen_to_rank_otherwise(
    model: CrossEncoder, graphs: GraphModel, dev: Dev, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.head.weight *= -1
    export_cross_encoder(other, tmp_path / "other.onnx")
    found = compare(graphs, GraphModel(tokenizer, Session(tmp_path / "other.onnx", "cpu", threads=1)), dev)
    assert found["top1_kept"] < 1
    assert found["logits"]["max"] > 0.1


def test_logit_differences() -> None:
    before = [np.zeros(60, np.float32), np.asarray([0.0] * 40 + [-np.inf], np.float32)]
    after = [np.zeros(60, np.float32), np.asarray([-2.0] + [1.0] * 39 + [-np.inf], np.float32)]
    found = logit_differences(before, after)
    assert found == {"mean": pytest.approx(0.41), "p99": pytest.approx(1.01), "max": 2, "pairs": 100}


def test_a_ranking_may_lose_two_thousandths_on_average() -> None:
    def lost(**measured: tuple[float, float]) -> float:
        each = {name: {"fp32": {"nDCG@10": fp32}, "served": {"nDCG@10": served}} for name, (fp32, served) in measured.items()}
        return check_ranking(each, "cpu in int8")

    assert lost(a=(0.9, 0.897), b=(0.5, 0.5)) == pytest.approx(0.0015)
    assert lost(a=(0.9, 0.91)) == pytest.approx(-0.01)
    with pytest.raises(ExportError, match=r"loses 0\.0030 on cpu in int8 \(a \+0\.0060, b \+0\.0000; 0\.002 is allowed\)"):
        lost(a=(0.9, 0.894), b=(0.5, 0.5))
