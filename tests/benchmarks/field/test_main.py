"""What is left to do, by what is there."""

from argparse import Namespace
from pathlib import Path

from benchmarks.field.__main__ import pieces
from benchmarks.field.plan import SETTINGS, run_of, system
from benchmarks.field.work import FINISHED, records_of
from training.evaluation.records import Record, write_record


def test_a_training_is_done_where_a_measurement_is_missing(tmp_path: Path) -> None:
    """All settings are due; then those of squad-articles' training are measured, and only the fine-tuned one is left."""
    options = Namespace(runs=tmp_path / "runs", records=tmp_path / "records")
    maxp = system("maxp")
    labels = [setting.label for setting in SETTINGS]
    for_all = [["articles"], [labels[0]], [labels[1]], [labels[3]], ["far"], [labels[2]]]
    assert [step[3::2] for step in pieces(maxp, 0, options)] == [*for_all, ["far-longer"], [labels[4]]]
    assert [step[3::2] for step in pieces(system("sump"), 0, options)] == for_all
    for label in labels:
        if label != "squad-far, fine-tuned":
            write_record(Record(system="maxp", collection=label, split="test", queries=[], values={}), records_of(options, 0))
    assert [step[0] for step in pieces(maxp, 0, options)] == ["--train", "--train", "--measure"], (
        "it starts from the first training"
    )
    run = run_of(options.runs, "articles", "maxp", 0)
    run.mkdir(parents=True)
    (run / FINISHED).touch()
    assert [step[1::2] for step in pieces(maxp, 0, options)] == [["maxp", "far"], ["maxp", "squad-far, fine-tuned"]]
