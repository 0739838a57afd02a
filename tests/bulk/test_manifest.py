"""What an output directory is made from."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bulk.errors import BulkError
from bulk.manifest import agree, complete, describe, fingerprint
from bulk.options import Options
from keyblock.bundle import load_bundle
from tests.bulk.jobs import write_lines


@pytest.fixture
def options(tmp_path: Path, bundle_path: Path) -> Options:
    (tmp_path / "out").mkdir()
    lists = write_lines(tmp_path / "lists.jsonl", [{"query": "tea", "documents": ["x"]}])
    return Options(lists=(lists,), bundle=bundle_path, out=tmp_path / "out")


bundle_of = cache(load_bundle)


def about(options: Options, **changed: Any) -> dict[str, Any]:
    return describe(Options(**options.model_dump() | changed), bundle_of(options.bundle))


def test_the_fingerprint_depends_on_the_task_and_not_on_the_engine(options: Options, tmp_path: Path) -> None:
    own = fingerprint(about(options))
    assert fingerprint(about(options, workers=7, engine="ray", attempts=9, out=tmp_path)) == own
    moved = options.lists[0].rename(tmp_path / "moved.jsonl")
    assert fingerprint(about(options, lists=(moved,))) == own
    others = [{"threads": 2}, {"top_n": 3}, {"spans": True}, {"precision": "fp32"}, {"shard_pairs": 7}]
    assert len({own, *(fingerprint(about(options, lists=(moved,), **other)) for other in others)}) == 6


def test_the_same_job_goes_on_and_another_is_refused(options: Options) -> None:
    own = about(options)
    assert agree(options.out, own) is None
    assert agree(options.out, own) is None
    with pytest.raises(BulkError, match=r"holds rankings of another job \(asked.top_n was 0, and is 5\): name another --out"):
        agree(options.out, about(options, top_n=5))
    options.lists[0].write_text('{"query": "tea", "documents": ["y"]}\n')
    with pytest.raises(BulkError, match=r"another job \(input.lists 1 was [0-9a-f]{64}, and is [0-9a-f]{64}\)"):
        agree(options.out, about(options))
    complete(options.out, own, {"shards": 1})
    assert agree(options.out, own) == {"shards": 1}


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_damaged_manifest_is_one_line(options: Options, text: str) -> None:
    (options.out / "manifest.json").write_text(text)
    with pytest.raises(BulkError, match=r"manifest.json: is damaged: name another --out"):
        agree(options.out, about(options))


def test_somebody_elses_directory_is_left_alone(options: Options) -> None:
    (options.out / "thesis.tex").touch()
    with pytest.raises(BulkError, match=r"has no manifest.json, but thesis.tex: name a directory that is empty"):
        agree(options.out, about(options))


def test_a_collection_counts_by_what_is_in_it(options: Options, tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus.jsonl", [])
    assert list(about(options, collection=tmp_path)["input"]) == ["lists 1", "corpus"]
    write_lines(tmp_path / "queries.jsonl", [])
    assert list(about(options, collection=tmp_path)["input"]) == ["lists 1", "corpus", "queries"]
    with pytest.raises(BulkError, match="cannot be read: No such file"):
        about(options, lists=(tmp_path / "none.jsonl",))
    assert json.dumps(about(options))
