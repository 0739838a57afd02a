"""The dev measurement inside training."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import CollectionError
from training.learn.dev import DevSet, EarlyStopping
from training.model.ranker_module import RankerModule
from training.recipe import Best, Recipe

Build = Callable[..., DevSet]


class Counts(nn.Module):
    """A ranker that counts a word of the toy's answers: what it measures is known beforehand."""

    word = 3437  # answer

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = nn.Parameter(torch.tensor(sign))

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.sign * (input_ids == self.word).sum(1)

    inputs = RankerModule.inputs
    outputs = forward


@pytest.fixture
def build(toy: Collection, change_pipeline: Callable[..., Pipeline], make_recipe: Callable[..., Recipe]) -> Build:
    def dev_set(collection: Collection = toy, chooser: Counts | None = None, **parts: Any) -> DevSet:
        """Whose pipeline has other parts, or whose recipe has other keys."""
        recipe = {key: parts.pop(key) for key in ("seed", "dev_queries", "dev_depth") if key in parts}
        return DevSet.build({"toy": Preparation(collection, change_pipeline(**parts))}, make_recipe(**recipe), chooser)

    return dev_set


def first(dev: DevSet, sign: float) -> float:
    """RR@10 of who counts the word."""
    return dev.measure(Counts(sign))["toy"]["RR@10"]


def test_measures_by_hand(build: Build) -> None:
    """The answer's document stands last of four in the first stage: first by its word, last where that counts against it."""
    assert build().measure(Counts(1.0)) == {"toy": {"RR@10": 1.0, "nDCG@10": 1.0}}
    assert first(build(), -1.0) == 0.25
    assert first(build(), 0.0) == 0.25  # ties stay in the first stage's order


@pytest.mark.parametrize(
    ("aggregator", "selector"),
    [("joint", {"name": "learned", "keep": 2}), ("max", {"name": "bm25"}), ("sum", {"name": "learned"})],
    ids=["cascade", "max", "sum of binb"],
)
def test_every_kind_of_pipeline_is_measured(build: Build, aggregator: str, selector: dict[str, Any]) -> None:
    """The word stands behind a document's first block: only who selects it, or reads all blocks, finds it."""
    assert first(build(aggregator={"name": aggregator}, selector=selector), 1.0) == 1.0


def test_a_learned_selection_follows_the_model_or_its_chooser(build: Build) -> None:
    """With one passage read, the answer is found by a selector that looks for it, and by no other."""
    one = {"aggregator": {"name": "max", "passages": 1}, "selector": {"name": "learned", "by": {"name": "first"}}}
    dev = build(**one)
    for _ in range(2):  # what the model selects is not kept for the next one
        assert first(dev, -1.0) == 0.25
        assert first(dev, 1.0) == 1.0
    assert first(build(chooser=Counts(-1.0), **one), 1.0) < 1.0
    assert first(build(chooser=Counts(1.0), **one), 1.0) == 1.0


def test_documents_without_a_block_come_last(build: Build, toy_copy: Path) -> None:
    """As they are served: the three others are emptied, so even who would rank the answer last ranks it first."""
    collection = Collection(toy_copy)
    for name in [name for name in collection.documents if not name.endswith("-3")]:
        collection.documents[name] = collection.documents[name]._replace(text="")  # type: ignore[index]
    for aggregator in ("joint", "max"):
        assert first(build(collection, aggregator={"name": aggregator}), -1.0) == 1.0


def test_the_sample_is_of_the_split(build: Build, toy_copy: Path) -> None:
    """The run may name more."""
    (toy_copy / "splits" / "dev.txt").write_text("forest?\nletter!\n", encoding="utf-8")
    assert set(build(Collection(toy_copy)).candidates["toy"]) == {"forest?", "letter!"}


def test_the_sample_is_fixed(build: Build) -> None:
    def pairs(**changes: int) -> list[tuple[str, str]]:
        return [(q, d) for q, documents in build(**changes).candidates["toy"].items() for d in documents]

    assert pairs(seed=1) == pairs(seed=2)
    assert len(pairs(dev_queries=3)) == 3 * 4
    assert len(pairs(dev_queries=100, dev_depth=2)) == 8 * 2


@pytest.mark.parametrize(
    ("line", "said"), [("sea? Q0 teacher-0 1 1 x", "query 'sea\\?'"), ("teacher? Q0 sea-0 1 1 x", "document 'sea-0'")]
)
def test_what_the_collection_lacks_is_reported_before_training(build: Build, toy_copy: Path, line: str, said: str) -> None:
    (toy_copy / "run.dev.bm25.trec.gz").write_bytes(gzip.compress(f"{line}\n".encode()))
    (toy_copy / "splits" / "dev.txt").write_text(line.partition(" ")[0], encoding="utf-8")
    with pytest.raises(CollectionError, match=said):
        build(Collection(toy_copy))


def test_the_iterations_of_best_reach_the_papers_third() -> None:
    """BeST, table 2: MRR on dev after iterations 1 to 4. One worse iteration must not end it."""
    stopping, seen = EarlyStopping(Best().patience), []
    for quality in (0.371, 0.368, 0.388, 0.364):
        assert not stopping.exhausted
        seen.append(stopping.improves(quality))
    assert seen == [True, False, True, False]
