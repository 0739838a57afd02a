"""Collections of a cross-validation on disk."""

import json
from pathlib import Path

import pytest

from lab.folds import first_stage, judged_queries, read_folds, write_folds
from training.data.collection import Collection
from training.data.folds import make_folds, rotations
from training.data.types import CollectionError, FileError


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


def test_folds_hold_no_second_copy(toy: Collection, tmp_path: Path) -> None:
    path = write_folds(toy, make_folds(judged_queries(toy), 3), tmp_path)[0]
    corpus = path / "corpus.jsonl.gz"
    assert corpus.is_symlink()
    assert corpus.resolve() == (toy.path / "corpus.jsonl.gz").resolve()
    assert not corpus.readlink().is_absolute()


def test_folds_are_not_written_over(toy: Collection, tmp_path: Path) -> None:
    folds = make_folds(judged_queries(toy), 3)
    write_folds(toy, folds, tmp_path)
    with pytest.raises(FileExistsError):
        write_folds(toy, folds, tmp_path)


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
