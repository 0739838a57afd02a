"""Where a job keeps its files."""

from pathlib import Path

from bulk.work import Intake, Layout
from tests.bulk.jobs import layout


def test_the_intake_is_there_once_it_is_written(tmp_path: Path) -> None:
    where = layout(tmp_path)
    assert Intake.read(where.work) is None
    Intake([2, 4], [3], 3).write(where.work)
    assert Intake.read(where.work) == Intake([2, 4], [3], 3)


def test_each_shard_has_a_name_of_its_own() -> None:
    where = Layout(Path("out"))
    names = [str(of(7)) for of in (where.rankings, where.lists, where.documents, where.prepared)]
    assert names == ["out/rankings-00007.parquet", *(f"out/work/{kind}-00007.arrow" for kind in ("lists", "documents", "prepared"))]
