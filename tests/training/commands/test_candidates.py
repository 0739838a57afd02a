"""keyblock-candidates on the toy."""

import json
from pathlib import Path

import pytest

from tests.training.commands.running import strings
from training.commands.candidates import main as candidates_main
from training.data.collection import Collection
from training.data.files import read_run


def test_candidates_for_every_query(toy_path: Path, toy: Collection, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "train.trec.gz"
    assert candidates_main(strings("--collection", toy_path, "--depth", 3, "--out", out)) == 0
    run = read_run(out)
    assert sorted(run) == sorted(toy.split("train"))
    assert run["river?"] == toy.run("train")["river?"]  # the collection's own list stays as it is
    assert len(run["river!"]) == 3


def test_the_command_reports_what_it_wrote(toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = strings("--collection", toy_path, "--split", "dev", "--out", tmp_path / "dev.trec")
    assert candidates_main(asked) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'dev.trec'}: 32 candidates of 8 queries\n"
    assert candidates_main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"queries": 8, "candidates": 32, "out": str(tmp_path / "dev.trec")}
