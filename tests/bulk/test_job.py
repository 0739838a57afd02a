"""A job without processes: its stages and shards, its manifest, its progress. With processes: test_cli.py."""

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from bulk import job
from bulk.errors import BulkError
from bulk.intake import take_in
from bulk.job import Progress, rank_all, rounds
from bulk.manifest import agree, complete, describe, fingerprint
from bulk.options import Options
from bulk.stages import ARITHMETIC, Job, Prepare, Score
from bulk.tables import PreparedTable, map_table
from bulk.work import Layout, whole_file, write_whole
from keyblock.bundle import load_bundle
from keyblock.lock import locked
from service.settings import DEFAULT_BUNDLE
from tests.bulk.jobs import InThisProcess, contents, made, rankings, river_lists, shards, write_lines


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))


def test_all_is_ranked_once(tmp_path: Path, bundle_path: Path) -> None:
    options = made(tmp_path, bundle_path, river_lists(5), shard_pairs=8)
    assert rank_all(options) == (5, 20, 4, 3, 3)
    assert [(row["qid"], row["rank"]) for row in rankings(options.out)] == [
        (f"q{n}", rank) for n in range(5) for rank in (1, 2, 3, 4)
    ]
    assert sorted(path.name for path in options.out.iterdir()) == ["manifest.json", *(path.name for path in shards(options.out))]
    (options.out / "work").mkdir()  # as a job that is stopped before it is removed
    with patch.object(job, "_engine", side_effect=AssertionError("nothing is left to do")):
        assert rank_all(options) == (5, 20, 4, 3, 0)
    assert not (options.out / "work").exists()


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ([{"query": " ", "documents": []}], {}, "line 1: the query is empty"),
        (river_lists(1), {"fusion": "linear"}, "line 1: --fusion reads a 'score' of each document, and query 'q0' lacks one"),
        (river_lists(1), {"fusion": "lineal"}, "fusion: .*lineal"),
    ],
)
def test_a_job_is_corrected_before_anything_is_computed(
    tmp_path: Path, bundle_path: Path, rows: list[Any], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        rank_all(made(tmp_path, bundle_path, rows, **more))
    assert rank_all(made(tmp_path, bundle_path, river_lists(1))) == (1, 4, 4, 1, 1)


def test_one_job_at_a_time(tmp_path: Path, bundle_path: Path) -> None:
    options = made(tmp_path, bundle_path, river_lists(1))
    with locked(options.out, AssertionError()), pytest.raises(BulkError, match=r"out: another job writes to it; wait for it"):
        rank_all(options)


def test_only_a_shard_that_is_missing_is_written_again(tmp_path: Path, bundle_path: Path) -> None:
    options = made(tmp_path, bundle_path, river_lists(4), shard_pairs=4)
    rank_all(options)
    before, stamps = contents(options.out), {path.name: path.stat().st_mtime_ns for path in shards(options.out)}
    shards(options.out)[2].unlink()
    (options.out / "rankings-00001.parquet.0123.partial").touch()
    assert rank_all(options) == (4, 16, 4, 4, 1)
    assert contents(options.out) == before
    changed = [path.name for path in shards(options.out) if path.stat().st_mtime_ns != stamps[path.name]]
    assert changed == ["rankings-00002.parquet"]
    assert not list(options.out.glob("*.partial"))


def test_the_prepared_documents_stay_where_they_are_to(tmp_path: Path, bundle_path: Path) -> None:
    options = made(tmp_path, bundle_path, river_lists(1), keep_work=True)
    rank_all(options)
    names = sorted(path.name for path in (options.out / "work").iterdir())
    assert names == ["arithmetic.txt", "documents-00000.arrow", "intake.json", "lists-00000.arrow", "prepared-00000.arrow"]


def test_documents_are_understood_where_that_is_asked(tmp_path: Path, bundle_path: Path) -> None:
    rows = [{"query": "tea", "documents": ["Tea is hot. Ice is cold."]}]
    with pytest.raises(BulkError, match="--understand needs a bundle with a sentence encoder"):
        rank_all(made(tmp_path, bundle_path, rows, understand=True))
    understanding = load_bundle(DEFAULT_BUNDLE).pipeline.understanding
    assert understanding is not None
    for asked in (False, True):
        options = made(tmp_path, DEFAULT_BUNDLE, rows, understand=asked, keep_work=True, out=tmp_path / str(asked))
        rank_all(options)
        prepared = PreparedTable(map_table(Layout(options.out).prepared(0)))
        assert understanding.has_read(prepared[0]) == asked


def test_rounds_go_on_while_any_shard_is_done() -> None:
    """Round by round what is done of what is missing, and in the end nothing."""
    done = iter([[0, 2], [], [3], [], []])
    asked, notes, found = list[list[int]](), list[str](), list[int]()

    def go(missing: list[int]) -> Iterator[int]:
        asked.append(missing)
        return iter(next(done))

    with pytest.raises(BulkError, match="shard 1 was tried 2 times, and a worker died each time: if memory is short, take fewer"):
        found.extend(rounds(go, range(4), 2, notes.append))
    assert found == [0, 2, 3]
    assert asked == [[0, 1, 2, 3], [1, 3], [1, 3], [1], [1]]
    assert notes == [f"workers died; shards that are tried again: {number}" for number in (2, 2, 1, 1)]


@pytest.fixture
def work(tmp_path: Path, bundle_path: Path) -> Job:
    options = made(tmp_path, bundle_path, river_lists(3), shard_pairs=4)
    where = Layout(options.out)
    where.work.mkdir(parents=True)
    return Job(where, bundle_path, options.asking, take_in(options, where), "0123", attempts=1)


def test_a_shard_of_another_job_or_a_damaged_one_is_refused(work: Job) -> None:
    Prepare(work)(0)
    Score(work)(0)
    path = work.layout.rankings(0)
    table = pq.read_table(path)
    for content in (lambda: pq.write_table(table.replace_schema_metadata({}), path), lambda: path.write_bytes(b"PAR1")):
        content()
        with pytest.raises(BulkError, match="is damaged, or of another job: remove it"):
            Score.whole(work, 0)


def test_workers_of_two_arithmetics_do_not_mix(work: Job) -> None:
    Score(work)
    assert (work.layout.work / ARITHMETIC).read_text() == "cpu in fp32"
    (work.layout.work / ARITHMETIC).write_text("cuda in fp16")
    with pytest.raises(
        BulkError, match="this worker's model runs on cpu in fp32, and that of another on cuda in fp16: name --provider"
    ):
        Score(work)


def test_workers_agree_where_there_are_no_hard_links(work: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    Score(work)
    (work.layout.work / ARITHMETIC).write_text("cuda in fp16")
    with pytest.raises(BulkError, match="and that of another on cuda in fp16"):
        Score(work)
    assert not [*work.layout.work.glob("*.partial")]


def test_a_file_appears_when_it_is_whole_and_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with whole_file(path) as partial:
        partial.write_text("before")
        assert not path.exists()
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half of it, and then \ud800")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.txt", "before")]


def test_each_tenth_is_a_line_and_so_is_a_minute(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress("score", "pairs", 1000, done=450)
    for _ in range(11):
        progress.add(50)
    progress.note("workers died")
    monkeypatch.setattr("bulk.job.SECONDS", 0)
    Progress("take in", "pairs").add(7)
    Progress("score", "pairs", 1000).add(0)  # of empty lists
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"[\d,.]+/s(, [\d,]+ s left)?", r"RATE", line) for line in lines] == [
        *(f"score: {done} of 1,000 pairs, RATE" for done in (500, 600, 700, 800, 900)),
        "score: 1,000 of 1,000 pairs, RATE",
        "workers died",
        "take in: 7 pairs, RATE",
        "score: 0 of 1,000 pairs, RATE",
    ]


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
    of_others = {fingerprint(about(options, lists=(moved,), **other)) for other in others}
    bundle = bundle_of(options.bundle)
    files = {name: entry.model_copy(update={"sha256": "0" * 64}) for name, entry in bundle.manifest.files.items()}
    retrained = replace(bundle, manifest=bundle.manifest.model_copy(update={"files": files}))
    assert len({own, fingerprint(describe(options.model_copy(update={"lists": (moved,)}), retrained)), *of_others}) == 7


def test_the_same_job_goes_on_and_another_is_refused(options: Options) -> None:
    own = about(options)
    (options.out / "manifest.json.0123.partial").touch()  # of a process that was killed as it began
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
