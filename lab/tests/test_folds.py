"""Collections of a cross-validation, and keyblock-folds on the toy."""

import json
from pathlib import Path

import pytest

from lab.commands.folds import main as folds_main
from lab.folds import first_stage, judged_queries, read_folds, write_folds
from tests.training.commands.conftest import cells, strings
from tests.training.commands.test_evaluate import reversed_run
from training.commands.evaluate import main as evaluate_main
from training.data.collection import Collection
from training.data.files import write_run
from training.data.folds import make_folds, rotations
from training.data.types import CollectionError, FileError
from training.evaluate.evaluate import read_values


def test_fold_collections_are_collections(toy: Collection, tmp_path: Path) -> None:
    folds = make_folds(judged_queries(toy), 4)
    *paths, joined = write_folds(toy, folds, tmp_path / "out")
    assert [path.name for path in paths] == [f"toy-fold-{number}" for number in (1, 2, 3, 4)]
    candidates = first_stage(toy)
    assert candidates == toy.run("train") | toy.run("dev")
    for path, rotation in zip(paths, rotations(folds), strict=True):
        collection = Collection(path)
        assert collection.documents == toy.documents
        assert collection.spans == toy.spans
        for split, queries in rotation._asdict().items():
            assert collection.split(split) == queries
            assert collection.run(split) == {q: pytest.approx(candidates[q]) for q in queries if q in candidates}
    assert sorted(Collection(joined).split("test")) == judged_queries(toy)
    assert Collection(joined).qrels == toy.qrels
    with pytest.raises(FileExistsError):  # folds are not written over
        write_folds(toy, folds, tmp_path / "out")


def test_folds_hold_no_second_copy(toy: Collection, tmp_path: Path) -> None:
    path = write_folds(toy, make_folds(judged_queries(toy), 3), tmp_path)[0]
    corpus = path / "corpus.jsonl.gz"
    assert corpus.is_symlink()
    assert corpus.resolve() == (toy.path / "corpus.jsonl.gz").resolve()
    assert not corpus.readlink().is_absolute()


def test_a_query_without_text_is_an_error_before_anything_is_written(toy: Collection, tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="names query 'sea'"):
        write_folds(toy, [["river?"], ["stone?"], ["sea"]], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_collection_without_candidates(toy_copy: Path, tmp_path: Path) -> None:
    for run in toy_copy.glob("run.*"):
        run.unlink()
    with pytest.raises(CollectionError, match=r"has no run\.SPLIT\.bm25\.trec"):
        write_folds(Collection(toy_copy), [["river?"], ["stone?"], ["bridge?"]], tmp_path / "out")


def test_folds_of_others(tmp_path: Path) -> None:
    (tmp_path / "folds.json").write_text(json.dumps([["301", 302], ["303"], ["304"]]), encoding="utf-8")
    assert read_folds([tmp_path / "folds.json"]) == [["301", "302"], ["303"], ["304"]]
    files = [tmp_path / f"{name}.txt" for name in "xyz"]
    for file, content in zip(files, ("301\n302\n", "303\n\n", "304"), strict=True):
        file.write_text(content, encoding="utf-8")
    assert read_folds(files) == [["301", "302"], ["303"], ["304"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[1], [2]", "is not JSON"),
        ('{"1": [2]}', "must be a list of folds"),
        ("[1, 2, 3]", "must be a list of folds"),
        ("[[1], [2]]", "2 folds of 1, 1 queries; three or more are needed"),
        ("[[1], [2], []]", "3 folds of 1, 1, 0 queries"),
        ("[[1, 2], [3], [2]]", "query 2 stands twice"),
    ],
)
def test_invalid_folds(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "folds.json").write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=said):
        read_folds([tmp_path / "folds.json"])


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


def test_cross_validation_measures_every_query_once(toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 24 queries the first stage leaves out the 8 with '!' in train: they count as zero, the others as 1 when turned round."""
    assert folds_main(strings("--collection", toy.path, "--folds", 4, "--out", tmp_path / "folds")) == 0
    *folds, joined = map(Path, capsys.readouterr().out.splitlines())
    runs = []
    for fold in folds:
        runs.append(tmp_path / "system" / fold.name / "run.trec.gz")
        runs[-1].parent.mkdir(parents=True)
        write_run(reversed_run(Collection(fold).run("test")), runs[-1], "reversed")
    ranked = [argument for run in runs for argument in strings("--ranked", run)]
    out = tmp_path / "out"
    joined_test = strings("--collection", joined, "--split", "test", "--name", "cross-validated", "--out", out)
    assert evaluate_main([*ranked, *joined_test, "--measures", "reported"]) == 0
    printed = cells(capsys.readouterr().out)
    assert printed["system"][:4] == ["RR@10", "p", "nDCG@1", "p"]
    assert printed["cross-validated"][0] == f"{16 / 24:.4f}"
    assert printed["first stage"][0] == f"{16 / 24 / 4:.4f}"
    assert len(read_values(out / "per_query.tsv")["AP"]) == 24
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["system"], summary["queries"], summary["ms_per_document"]) == ("cross-validated", 24, None)
