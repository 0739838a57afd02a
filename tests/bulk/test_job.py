"""A job from beginning to end, without processes; with them in tests/bulk/test_cli.py."""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest

from bulk import job
from bulk.errors import BulkError
from bulk.job import rank_all
from keyblock.lock import locked
from tests.bulk.jobs import InThisProcess, contents, made, rankings, river_lists, shards


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
    with patch.object(job, "_engine", side_effect=AssertionError("nothing is left to do")):
        assert rank_all(options) == (5, 20, 4, 3, 0)


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
