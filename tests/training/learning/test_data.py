"""A run's data: what is drawn, what is measured, and which documents are prepared before the first step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.prepared_cache import PreparedCache
from training.data.types import Document
from training.evaluate.ranking import load_run_pipeline
from training.learn.data import Data
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


def test_what_was_prepared_is_kept_at_the_end(build: Build, tmp_path: Path) -> None:
    data = build(tmp_path, steps=1)
    data.draw(0)
    assert not data.caches[0].store.exists()
    data.close()
    assert len(list(data.caches[0].store.glob("shard-*"))) == 1


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
