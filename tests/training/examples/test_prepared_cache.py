"""Prepared documents on disk: what is read back is what would be prepared, and nothing else is ever read."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from tests.support.prepared import assert_equal
from tests.support.vectors import concept_table
from training.data import prepared_cache
from training.data.collection import Collection
from training.data.prepared_cache import PreparedCache, default_directory
from training.data.types import Document

Open = Callable[[Pipeline], PreparedCache]


@pytest.fixture
def cache_of(backbone: Path, tmp_path: Path) -> Open:
    """Opens the cache of a pipeline in one directory."""
    return lambda pipeline: PreparedCache(tmp_path, pipeline, backbone / "tokenizer.json")


def assert_alike(cache: PreparedCache, pipeline: Pipeline, documents: Iterable[Document]) -> None:
    """The cache gives what the pipeline prepares."""
    for document in documents:
        assert_equal(cache.prepare(document), pipeline.prepare_document(document.text, document.title))


def with_encoder(pipeline: Pipeline) -> Pipeline:
    config = pipeline.config.model_copy(update={"encoder": {"name": "static"}})
    return Pipeline(config, pipeline.tokenizer, pipeline.frequencies, concept_table(pipeline.tokenizer))


class Refusing(Pipeline):
    """Prepares nothing: all must come from the store."""

    def prepare_documents(self, texts: Sequence[str], titles: Sequence[str] | None = None) -> list[PreparedDocument]:
        raise AssertionError(f"{len(texts)} documents were prepared again")


def refusing(pipeline: Pipeline) -> Refusing:
    return Refusing(pipeline.config, pipeline.tokenizer, pipeline.frequencies, pipeline.encoder)


@pytest.fixture(scope="module")
def documents(toy: Collection) -> list[Document]:
    odd = [Document("empty", "", ""), Document("title only", "Bridges", ""), Document("Ü", "", "Ein Satz. 한국어 문장. \ud800?")]
    return [*list(toy.documents.values())[:6], *odd]


def test_what_is_kept_is_what_is_prepared(pipeline: Pipeline, documents: list[Document], cache_of: Open) -> None:
    first = cache_of(pipeline)
    assert_alike(first, pipeline, documents)
    first.flush()
    again = cache_of(refusing(pipeline))
    for cache in (again, first):
        assert_alike(cache, pipeline, reversed(documents))
    again.fill(documents)
    again.flush()
    assert len(list(again.store.iterdir())) == 1


def test_vectors_are_kept_in_a_store_of_their_own(pipeline: Pipeline, documents: list[Document], cache_of: Open) -> None:
    hybrid = with_encoder(pipeline)
    plain, first = (cache_of(one) for one in (pipeline, hybrid))
    for cache in (plain, first):
        cache.fill(documents)
    assert_alike(cache_of(refusing(hybrid)), hybrid, documents)
    assert not list(plain.store.glob("*/vectors.npy"))
    (vectors,) = first.store.glob("*/vectors.npy")
    vectors.unlink()
    assert_alike(cache_of(hybrid), hybrid, documents[:1])


def test_filled_at_once_and_a_shard_at_a_time(
    pipeline: Pipeline, documents: list[Document], cache_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_cache, "AT_ONCE", 2)
    monkeypatch.setattr(prepared_cache, "SHARD", 4)
    cache = cache_of(pipeline)
    cache.prepare(documents[0])
    cache.fill([*documents, *documents])
    assert len(list(cache.store.glob("shard-*"))) == 2  # 1 + 2 + 2 documents, then the other 4
    assert [path.name for path in cache.store.iterdir() if not path.name.startswith("shard-")] == []
    assert_alike(cache_of(refusing(pipeline)), pipeline, documents)


@pytest.mark.parametrize(
    ("victim", "how"), [("digests.npy", "missing"), ("token_ids.npy", "empty"), ("terms.bounds.npy", "cut short")]
)
def test_a_damaged_shard_is_made_again(
    pipeline: Pipeline, documents: list[Document], cache_of: Open, victim: str, how: str
) -> None:
    cache = cache_of(pipeline)
    cache.fill(documents)
    (shard,) = cache.store.iterdir()
    content = (shard / victim).read_bytes()
    (shard / victim).unlink()
    if how != "missing":
        (shard / victim).write_bytes(b"" if how == "empty" else content[: len(content) // 2])
    assert_alike(cache_of(pipeline), pipeline, documents)


def test_a_shard_that_cannot_be_read_now_is_kept(
    pipeline: Pipeline, documents: list[Document], cache_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_of(pipeline)
    cache.fill(documents)
    with monkeypatch.context() as broken:
        broken.setattr(np, "load", lambda *_, **__: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        with pytest.raises(OSError, match="Too many open files"):
            cache_of(pipeline)
    cache_of(refusing(pipeline)).fill(documents)


def test_two_that_need_the_same_at_once(pipeline: Pipeline, documents: list[Document], cache_of: Open) -> None:
    one, other = (cache_of(pipeline) for _ in range(2))
    for cache in (one, other):
        assert_alike(cache, pipeline, documents)
    one.flush()
    other.flush()
    assert len(list(one.store.iterdir())) == 1
    assert_alike(other, pipeline, documents[:1])


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEYBLOCK_CACHE", str(tmp_path))
    assert default_directory() == tmp_path
    monkeypatch.delenv("KEYBLOCK_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".cache" / "keyblock"
