"""keyblock-folds on the toy."""

import json
from pathlib import Path

import pytest

from tests.training.commands.running import strings
from training.collections.collection import Collection
from training.commands.folds import main as folds_main


def test_folds_of_listed_queries_and_of_others(toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queries.txt").write_text("teacher?\nletter?\nforest?\n", encoding="utf-8")
    listed = strings("--collection", toy.path, "--folds", 3, "--queries", tmp_path / "queries.txt", "--out", tmp_path / "listed")
    assert folds_main(listed) == 0
    tested = [Collection(tmp_path / "listed" / f"toy-fold-{n}").split("test") for n in (1, 2, 3)]
    assert sorted(query for split in tested for query in split) == ["forest?", "letter?", "teacher?"]
    given = [["teacher?", "letter?"], ["forest?"], ["river?"]]
    (tmp_path / "given.json").write_text(json.dumps(given), encoding="utf-8")
    of_others = strings("--collection", toy.path, "--given", tmp_path / "given.json", "--out", tmp_path / "given")
    assert folds_main(of_others) == 0
    assert [Collection(tmp_path / "given" / f"toy-fold-{n}").split("test") for n in (1, 2, 3)] == given
    capsys.readouterr()
    assert folds_main(of_others) == 2
    said = capsys.readouterr().err
    assert said.startswith("keyblock-folds: ")
    assert "File exists" in said
    assert said.count("\n") == 1


def test_folds_of_a_described_collection_are_its_description_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "robust.yaml"
    path.write_text("name: robust\ndocuments: disks45/nocr\nsplits: {all: disks45/nocr/trec-robust-2004}\n", encoding="utf-8")
    given = tmp_path / "given.json"
    given.write_text("[[301], [302], [303]]", encoding="utf-8")
    assert folds_main(strings("--collection", path, "--given", given, "--out", tmp_path / "folds")) == 2
    assert "robust.yaml: is no collection directory; give its description the key 'folds' instead" in capsys.readouterr().err
