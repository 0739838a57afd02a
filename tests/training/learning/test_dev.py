"""The dev measurement inside training."""

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import CollectionError
from training.learn.dev import DevSet, EarlyStopping
from training.model.ranker_module import RankerModule
from training.recipe import Best, Recipe


class Counts(nn.Module):
    """A ranker that counts a word: what it measures on the toy is known beforehand."""

    def __init__(self, token: int, sign: float) -> None:
        super().__init__()
        self.token, self.sign = token, nn.Parameter(torch.tensor(sign))

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.sign * (input_ids == self.token).sum(1)

    inputs = RankerModule.inputs
    outputs = forward


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


@pytest.mark.parametrize(
    ("aggregator", "selector"),
    [
        ("joint", {"name": "learned", "keep": 2}),
        ("max", {"name": "bm25"}),
        ("sum", {"name": "learned"}),
    ],
    ids=["cascade", "max", "sum of binb"],
)
def test_every_kind_of_pipeline_is_measured(
    toy: Collection,
    change_pipeline: Callable[..., Pipeline],
    make_recipe: Callable[..., Recipe],
    answer: int,
    aggregator: str,
    selector: dict[str, Any],
) -> None:
    """The word stands behind a document's first block: only who selects it, or reads all blocks, finds it."""
    preparations = {"toy": Preparation(toy, change_pipeline(aggregator={"name": aggregator}, selector=selector))}
    assert DevSet.build(preparations, make_recipe()).measure(Counts(answer, 1.0))["toy"]["RR@10"] == 1.0


def test_a_learned_selection_follows_the_model_or_its_chooser(
    toy: Collection, change_pipeline: Callable[..., Pipeline], make_recipe: Callable[..., Recipe], answer: int
) -> None:
    """With one passage read, the answer is found by a selector that looks for it, and by no other."""
    one = change_pipeline(aggregator={"name": "max", "passages": 1}, selector={"name": "learned", "by": {"name": "first"}})
    preparations = {"toy": Preparation(toy, one)}
    dev = DevSet.build(preparations, make_recipe())
    for _ in range(2):  # what the model selects is not kept for the next one
        assert dev.measure(Counts(answer, -1.0))["toy"]["RR@10"] == 0.25
        assert dev.measure(Counts(answer, 1.0))["toy"]["RR@10"] == 1.0
    blind = DevSet.build(preparations, make_recipe(), chooser=Counts(answer, -1.0))
    assert blind.measure(Counts(answer, 1.0))["toy"]["RR@10"] < 1.0
    assert (
        DevSet.build(preparations, make_recipe(), chooser=Counts(answer, 1.0)).measure(Counts(answer, 1.0))["toy"]["RR@10"] == 1.0
    )


def test_documents_without_a_block_come_last(
    toy_copy: Path, change_pipeline: Callable[..., Pipeline], make_recipe: Callable[..., Recipe], answer: int
) -> None:
    """As they are served: the three others are emptied, so even who would rank the answer last ranks it first."""
    collection = Collection(toy_copy)
    for name in [name for name in collection.documents if not name.endswith("-3")]:
        collection.documents[name] = collection.documents[name]._replace(text="")  # type: ignore[index]
    for aggregator in ("joint", "max"):
        preparations = {"toy": Preparation(collection, change_pipeline(aggregator={"name": aggregator}))}
        assert DevSet.build(preparations, make_recipe()).measure(Counts(answer, -1.0))["toy"]["RR@10"] == 1.0


def test_the_sample_is_fixed(preparations: dict[str, Preparation], make_recipe: Callable[..., Recipe]) -> None:
    def pairs(**changes: object) -> list[tuple[str, str]]:
        candidates = DevSet.build(preparations, make_recipe(**changes)).candidates["toy"]
        return [(q, d) for q, documents in candidates.items() for d in documents]

    assert pairs(seed=1) == pairs(seed=2)
    assert len(pairs(dev_queries=3)) == 3 * 4
    assert len(pairs(dev_queries=100, dev_depth=2)) == 8 * 2


@pytest.mark.parametrize(
    ("line", "said"), [("sea? Q0 teacher-0 1 1 x", "query 'sea\\?'"), ("teacher? Q0 sea-0 1 1 x", "document 'sea-0'")]
)
def test_files_that_the_collection_lacks_are_reported_before_training(
    toy_copy: Path, toy_pipeline: Pipeline, make_recipe: Callable[..., Recipe], line: str, said: str
) -> None:
    (toy_copy / "run.dev.bm25.trec.gz").write_bytes(gzip.compress(f"{line}\n".encode()))
    with pytest.raises(CollectionError, match=said):
        DevSet.build({"toy": Preparation(Collection(toy_copy), toy_pipeline)}, make_recipe())


def test_by_hand() -> None:
    """Two in a row without a better one: an equal one counts as none."""
    stopping = EarlyStopping(patience=2)
    seen = [(stopping.improves(quality), stopping.exhausted) for quality in (0.3, 0.2, 0.5, 0.5, 0.4)]
    assert seen == [(True, False), (False, False), (True, False), (False, False), (False, True)]
    assert stopping.best == 0.5


def test_the_iterations_of_best_reach_the_papers_third() -> None:
    """BeST, table 2: MRR on dev after iterations 1 to 4. One worse iteration must not end it."""
    stopping, seen = EarlyStopping(Best().patience), []
    for quality in (0.371, 0.368, 0.388, 0.364):
        assert not stopping.exhausted
        seen.append(stopping.improves(quality))
    assert seen == [True, False, True, False]


@given(st.lists(st.floats(0, 1)), st.integers(1, 5), st.data())
def test_saved_and_loaded_it_goes_on(values: list[float], patience: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    whole, first, second = (EarlyStopping(patience) for _ in range(3))
    expected = [(whole.improves(value), whole.exhausted) for value in values]
    got = [(first.improves(value), first.exhausted) for value in values[:cut]]
    second.load_state_dict(first.state_dict())
    assert got + [(second.improves(value), second.exhausted) for value in values[cut:]] == expected
    assert second.best == max(values, default=-math.inf)
