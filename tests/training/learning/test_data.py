"""A run's data: what is drawn, what is measured, and which documents are prepared before the first step; its head start."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.prepared_cache import PreparedCache
from training.data.types import Document
from training.evaluate.ranking import load_run_pipeline
from training.learn.data import Data
from training.learn.loop import TrainingError
from training.learn.objectives import RankingObjective
from training.learn.probing import probe
from training.learn.train import make_model
from training.model.ranker_module import RankerModule
from training.recipe import Recipe

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
