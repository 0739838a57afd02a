"""keyblock-candidates on the toy."""

from pathlib import Path

from tests.training.commands.running import strings
from training.collections.collection import Collection
from training.collections.runs import read_run
from training.commands.candidates import main as candidates_main


def test_candidates_for_every_query(toy_path: Path, toy: Collection, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "train.trec.gz"
    assert candidates_main(strings("--collection", toy_path, "--depth", 3, "--out", out)) == 0
    run = read_run(out)
    assert sorted(run) == sorted(toy.split("train"))
    assert run["river?"] == toy.run("train")["river?"]  # the collection's own list stays as it is
    assert len(run["river!"]) == 3
