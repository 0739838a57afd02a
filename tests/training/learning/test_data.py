"""A run's data: what is drawn and what is measured, which documents are prepared before the first step; its head start; dev."""

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
from training.data.prepared_cache import PreparedCache
from training.data.types import CollectionError, Document
from training.evaluate.ranking import load_run_pipeline
from training.learn.data import Data
from training.learn.dev import DevSet, EarlyStopping
from training.learn.loop import TrainingError
from training.learn.objectives import RankingObjective
from training.learn.probing import probe
from training.learn.train import make_model
from training.model.ranker_module import RankerModule
from training.recipe import Best, Recipe

Build = Callable[..., Data]


@pytest.fixture
def build(toy: Collection, toy_run: Path, make_recipe: Callable[..., Recipe]) -> Build:
    def data(cache: Path | None = None, **changes: Any) -> Data:
        recipe = make_recipe(**changes)
        served = load_run_pipeline(toy_run)
        served = Pipeline(recipe.pipeline, served.tokenizer, served.frequencies)
        return Data.build(recipe, [toy], served, toy_run / "tokenizer.json", cache)

    return data


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the documents that a cache is asked to prepare at once."""
    names: list[str] = []
    monkeypatch.setattr(PreparedCache, "fill", lambda _, documents: names.extend(d.doc_id for d in documents))
    return names


def test_trained_on_one_pipeline_and_measured_on_another(build: Build, tmp_path: Path) -> None:
    data = build(tmp_path, training={"segmenter": {"name": "cogltx", "block_tokens": 16}})
    (served, trained) = (data.dev.preparations["toy"].pipeline, data.sources["toy"].preparation.pipeline)
    assert (served.config, trained.config) == (data.recipe.pipeline, data.recipe.training_pipeline)
    assert trained is data.pipeline
    assert data.caches[0].store != data.caches[1].store


@pytest.mark.parametrize("changes", [{}, {"training": {"selector": {"name": "first"}}}])
def test_pipelines_that_prepare_alike_share_their_documents(build: Build, tmp_path: Path, changes: dict[str, Any]) -> None:
    data = build(tmp_path, **changes)
    assert data.caches[0] is data.caches[1]


def test_a_run_that_sees_most_of_the_pool_prepares_it_at_once(build: Build, tmp_path: Path, filled: list[str]) -> None:
    """32 documents; each step looks at three groups of four, or at those of the sample that the hard ones come from."""
    build(tmp_path, steps=2).prepare()  # 2 x 3 x 4 looks
    build(None, steps=40).prepare()  # nowhere to keep them
    assert filled == []
    data = build(tmp_path, steps=3)
    data.prepare()
    assert len(filled) == len(set(filled)) == 32
    assert set(filled) <= set(data.sources["toy"].preparation.collection.documents)
    filled.clear()
    build(tmp_path, steps=1, negatives={"per_query": 3, "depth": 4, "hard": 1, "hard_sample": 40}).prepare()
    assert len(filled) == 32


def test_after_a_minute_it_is_kept_too(
    toy_pipeline: Pipeline, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("training.data.prepared_cache.time.monotonic", lambda: now[0])
    cache = PreparedCache(tmp_path, toy_pipeline, toy_run / "tokenizer.json")
    cache.prepare(Document("a", "", "One bridge."))
    assert not cache.store.exists()
    now[0] = 61.0
    cache.prepare(Document("b", "", "Two bridges."))
    assert len(list(cache.store.glob("shard-*"))) == 1


def parts(data: Data) -> tuple[RankerModule, RankingObjective]:
    """The model and the objective of the recipe."""
    model, _ = make_model(data.recipe, torch.device("cpu"))
    return model, RankingObjective(data.recipe, data.pipeline, data.examples)


@pytest.mark.parametrize("model", [{"name": "cross_encoder"}, {"name": "cedr_knrm", "query_tokens": 8}])
def test_known_states_lose_as_the_sequences_do(build: Build, model: dict[str, Any]) -> None:
    """Those of queries without an answer, too."""
    data = build(model=model, unanswered=0.7, pointwise=0.5)
    ranker, objective = parts(data)
    groups = data.draw(0).groups
    assert {group.answered for group in groups} == {True, False}
    known = objective.frozen(ranker, groups)
    torch.testing.assert_close(objective.frozen_loss(ranker, known), objective(ranker, groups), rtol=1e-4, atol=1e-5)


def test_the_head_learns_and_the_encoder_does_not(build: Build) -> None:
    """From its states, on groups that are not those of the run."""
    data, drawn = build(probe={"steps": 2, "epochs": 20, "groups": 2}, optimizer={"head_lr": 0.5}, steps=7), list[int]()
    model, objective = parts(data)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = probe(model, objective, lambda step: (drawn.append(step), data.draw(step))[1], data.recipe)
    changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"head"}
    assert len(losses) == 20
    assert losses[-1] < 0.9 * losses[0]
    assert drawn == [7, 8]


def test_a_model_that_learns_before_its_states_alone_is_refused(build: Build) -> None:
    data = build(probe={"steps": 1, "epochs": 1}, model={"name": "neural_model1", "query_tokens": 8, "width": 4})
    with pytest.raises(TrainingError, match="neural_model1 has nothing that learns behind its states; leave probe out"):
        probe(*parts(data), data.draw, data.recipe)


DevOf = Callable[..., DevSet]


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
def dev_of(toy: Collection, change_pipeline: Callable[..., Pipeline], make_recipe: Callable[..., Recipe]) -> DevOf:
    def dev_set(collection: Collection = toy, chooser: Counts | None = None, **parts: Any) -> DevSet:
        """Whose pipeline has other parts, or whose recipe has other keys."""
        recipe = {key: parts.pop(key) for key in ("seed", "dev_queries", "dev_depth") if key in parts}
        return DevSet.build({"toy": Preparation(collection, change_pipeline(**parts))}, make_recipe(**recipe), chooser)

    return dev_set


def first(dev: DevSet, sign: float) -> float:
    """RR@10 of who counts the word."""
    return dev.measure(Counts(sign))["toy"]["RR@10"]


def test_measures_by_hand(dev_of: DevOf) -> None:
    """The answer's document stands last of four in the first stage: first by its word, last where that counts against it."""
    assert dev_of().measure(Counts(1.0)) == {"toy": {"RR@10": 1.0, "nDCG@10": 1.0}}
    assert first(dev_of(), -1.0) == 0.25
    assert first(dev_of(), 0.0) == 0.25  # ties stay in the first stage's order


@pytest.mark.parametrize(
    ("aggregator", "selector"),
    [("joint", {"name": "learned", "keep": 2}), ("max", {"name": "bm25"}), ("sum", {"name": "learned"})],
    ids=["cascade", "max", "sum of binb"],
)
def test_every_kind_of_pipeline_is_measured(dev_of: DevOf, aggregator: str, selector: dict[str, Any]) -> None:
    """The word stands behind a document's first block: only who selects it, or reads all blocks, finds it."""
    assert first(dev_of(aggregator={"name": aggregator}, selector=selector), 1.0) == 1.0


def test_a_learned_selection_follows_the_model_or_its_chooser(dev_of: DevOf) -> None:
    """With one passage read, the answer is found by a selector that looks for it, and by no other."""
    one = {"aggregator": {"name": "max", "passages": 1}, "selector": {"name": "learned", "by": {"name": "first"}}}
    dev = dev_of(**one)
    for _ in range(2):  # what the model selects is not kept for the next one
        assert first(dev, -1.0) == 0.25
        assert first(dev, 1.0) == 1.0
    assert first(dev_of(chooser=Counts(-1.0), **one), 1.0) < 1.0
    assert first(dev_of(chooser=Counts(1.0), **one), 1.0) == 1.0


def test_documents_without_a_block_come_last(dev_of: DevOf, toy_copy: Path) -> None:
    """As they are served: the three others are emptied, so even who would rank the answer last ranks it first."""
    collection = Collection(toy_copy)
    for name in [name for name in collection.documents if not name.endswith("-3")]:
        collection.documents[name] = collection.documents[name]._replace(text="")  # type: ignore[index]
    for aggregator in ("joint", "max"):
        assert first(dev_of(collection, aggregator={"name": aggregator}), -1.0) == 1.0


def test_the_sample_is_of_the_split(dev_of: DevOf, toy_copy: Path) -> None:
    """The run may name more."""
    (toy_copy / "splits" / "dev.txt").write_text("forest?\nletter!\n", encoding="utf-8")
    assert set(dev_of(Collection(toy_copy)).candidates["toy"]) == {"forest?", "letter!"}


def test_the_sample_is_fixed(dev_of: DevOf) -> None:
    def pairs(**changes: int) -> list[tuple[str, str]]:
        return [(q, d) for q, documents in dev_of(**changes).candidates["toy"].items() for d in documents]

    assert pairs(seed=1) == pairs(seed=2)
    assert len(pairs(dev_queries=3)) == 3 * 4
    assert len(pairs(dev_queries=100, dev_depth=2)) == 8 * 2


@pytest.mark.parametrize(
    ("line", "said"), [("sea? Q0 teacher-0 1 1 x", "query 'sea\\?'"), ("teacher? Q0 sea-0 1 1 x", "document 'sea-0'")]
)
def test_what_the_collection_lacks_is_reported_before_training(dev_of: DevOf, toy_copy: Path, line: str, said: str) -> None:
    (toy_copy / "run.dev.bm25.trec.gz").write_bytes(gzip.compress(f"{line}\n".encode()))
    (toy_copy / "splits" / "dev.txt").write_text(line.partition(" ")[0], encoding="utf-8")
    with pytest.raises(CollectionError, match=said):
        dev_of(Collection(toy_copy))


def test_the_iterations_of_best_reach_the_papers_third() -> None:
    """BeST, table 2: MRR on dev after iterations 1 to 4. One worse iteration must not end it."""
    stopping, seen = EarlyStopping(Best().patience), []
    for quality in (0.371, 0.368, 0.388, 0.364):
        assert not stopping.exhausted
        seen.append(stopping.improves(quality))
    assert seen == [True, False, True, False]
