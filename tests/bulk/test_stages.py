"""Shards are written whole, carry their job's name, and are of one arithmetic; how far a stage is."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bulk.errors import BulkError
from bulk.intake import take_in
from bulk.job import Progress
from bulk.stages import ARITHMETIC, Job, Prepare, Score
from bulk.work import Layout, whole_file, write_whole
from tests.bulk.jobs import made, rankings, river_lists


@pytest.fixture
def job(tmp_path: Path, bundle_path: Path) -> Job:
    options = made(tmp_path, bundle_path, river_lists(3), shard_pairs=4)
    where = Layout(options.out)
    where.work.mkdir(parents=True)
    return Job(where, bundle_path, options.asking, take_in(options, where), "0123")


def test_prepare_then_score(job: Job) -> None:
    assert (job.intake.documents, job.intake.pairs) == ([4], [4, 4, 4])
    assert not Prepare.whole(job, 0)
    Prepare(job)(0)
    assert Prepare.whole(job, 0)
    score = Score(job)
    assert not Score.whole(job, 2)
    score(2)
    assert Score.whole(job, 2)
    assert [row["qid"] for row in rankings(job.layout.out)] == ["q2"] * 4
    assert [path.name for path in job.layout.out.iterdir() if path.is_file()] == ["rankings-00002.parquet"]
    before = job.layout.rankings(2).read_bytes()
    Score(job)(2)
    assert job.layout.rankings(2).read_bytes() == before


def test_a_shard_of_another_job_or_a_damaged_one_is_refused(job: Job) -> None:
    Prepare(job)(0)
    Score(job)(0)
    path = job.layout.rankings(0)
    table = pq.read_table(path)
    for content in (lambda: pq.write_table(table.replace_schema_metadata({}), path), lambda: path.write_bytes(b"PAR1")):
        content()
        with pytest.raises(BulkError, match="is damaged, or of another job: remove it"):
            Score.whole(job, 0)


def test_workers_of_two_arithmetics_do_not_mix(job: Job) -> None:
    Score(job)
    assert (job.layout.work / ARITHMETIC).read_text() == "cpu in fp32"
    (job.layout.work / ARITHMETIC).write_text("cuda in fp16")
    with pytest.raises(
        BulkError, match="this worker's model runs on cpu in fp32, and that of another on cuda in fp16: name --provider"
    ):
        Score(job)


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with whole_file(path) as partial:
        partial.write_text("whole")
        assert not path.exists()
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "whole"


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "before")
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
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"[\d,.]+/s(, [\d,]+ s left)?", r"RATE", line) for line in lines] == [
        *(f"score: {done} of 1,000 pairs, RATE" for done in (500, 600, 700, 800, 900)),
        "score: 1,000 of 1,000 pairs, RATE",
        "workers died",
        "take in: 7 pairs, RATE",
    ]


def test_a_shard_of_empty_lists_that_took_a_minute_has_no_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bulk.job.SECONDS", 0)
    Progress("score", "pairs", 1000).add(0)
    assert capsys.readouterr().err == "score: 0 of 1,000 pairs, 0.0/s\n"
