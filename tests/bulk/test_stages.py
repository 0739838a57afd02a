"""Shards are written whole, carry their job's name, and are of one arithmetic."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bulk.errors import BulkError
from bulk.intake import take_in
from bulk.stages import ARITHMETIC, Job, Prepare, Score
from bulk.work import Layout
from tests.bulk.jobs import made, rankings, river_lists


@pytest.fixture
def job(tmp_path: Path, bundle_path: Path) -> Job:
    options = made(tmp_path, bundle_path, river_lists(3), shard_pairs=4)
    where = Layout(options.out)
    where.work.mkdir(parents=True)
    return Job(where, bundle_path, options.asking, take_in(options, where), "0123")


def test_prepare_then_score(job: Job) -> None:
    assert (Prepare.sizes(job), Score.sizes(job)) == ([4], [4, 4, 4])
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
