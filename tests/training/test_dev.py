"""The dev measurement inside training."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from keyblock.pipeline import Pipeline
from training.collection import Collection, CollectionError
from training.dev import DevSet
from training.recipe import Recipe
from training.sampling import Preparation


class Counts(nn.Module):
    """A ranker that counts a word: what it measures on the toy is known beforehand."""

    def __init__(self, token: int, sign: float) -> None:
        super().__init__()
        self.token, self.sign = token, nn.Parameter(torch.tensor(sign))

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.sign * (input_ids == self.token).sum(1)


@pytest.fixture(scope="module")
def answer(toy_pipeline: Pipeline) -> int:
    return int(toy_pipeline.tokenizer.ids("answer")[0])


@pytest.fixture(scope="module")
def preparations(toy: Collection, toy_pipeline: Pipeline) -> dict[str, Preparation]:
    return {"toy": Preparation(toy, toy_pipeline)}


def test_measures_by_hand(preparations: dict[str, Preparation], make_recipe: Callable[..., Recipe], answer: int) -> None:
    """The answer's document stands last of four in the first stage: first by its word, last where that counts against it."""
    dev = DevSet.build(preparations, make_recipe())
    assert dev.measure(Counts(answer, 1.0)) == {"toy": {"RR@10": 1.0, "nDCG@10": 1.0}}
    assert dev.measure(Counts(answer, -1.0))["toy"]["RR@10"] == 0.25
    assert dev.measure(Counts(answer, 0.0))["toy"]["RR@10"] == 0.25  # ties stay in the first stage's order


def test_the_sample_is_fixed(preparations: dict[str, Preparation], make_recipe: Callable[..., Recipe]) -> None:
    def pairs(**changes: object) -> list[tuple[str, str]]:
        return [(q, d) for q, d, _ in DevSet.build(preparations, make_recipe(**changes)).pairs["toy"]]

    assert pairs(seed=1) == pairs(seed=2)
    assert len(pairs(dev_queries=3)) == 3 * 4
    assert len(pairs(dev_queries=100, dev_depth=2)) == 8 * 2


def test_sequences_keep_the_pipelines_budget(preparations: dict[str, Preparation], make_recipe: Callable[..., Recipe]) -> None:
    longest = max(len(packed.ids) for _, _, packed in DevSet.build(preparations, make_recipe()).pairs["toy"])
    assert longest == preparations["toy"].pipeline.config.packing.budget


def test_a_collection_without_a_dev_run(toy_copy: Path, toy_pipeline: Pipeline, make_recipe: Callable[..., Recipe]) -> None:
    (toy_copy / "run.dev.bm25.trec.gz").unlink()
    with pytest.raises(CollectionError, match=r"has no run\.dev\.bm25\.trec"):
        DevSet.build({"toy": Preparation(Collection(toy_copy), toy_pipeline)}, make_recipe())
