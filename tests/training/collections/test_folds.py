"""Folds: every query tested once by a model that never saw it; fold collections are collections."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.collections.folds import make_folds, read_folds, rotations
from training.collections.types import FileError

IDS = st.sets(st.text("abcdef0123", min_size=1), min_size=3, max_size=40)


@given(IDS, st.integers(3, 6), st.integers(0, 3), st.randoms())
def test_every_query_is_dealt_once_and_alike(queries: set[str], count: int, seed: int, rng: object) -> None:
    count = min(count, len(queries))
    folds = make_folds(queries, count, seed)
    assert sorted(query for fold in folds for query in fold) == sorted(queries)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    assert make_folds(sorted(queries, reverse=True), count, seed) == folds


def test_another_seed_deals_otherwise() -> None:
    queries = [str(number) for number in range(50)]
    assert make_folds(queries, 5, seed=0) != make_folds(queries, 5, seed=1)
    assert make_folds(queries, 5)[0] != queries[:10]


@pytest.mark.parametrize(("queries", "count"), [("abcdef", 2), ("ab", 3), ("", 5)])
def test_folds_that_cannot_be_dealt(queries: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"{len(queries)} queries cannot be dealt into {count} folds"):
        make_folds(queries, count)


def test_rotations_by_hand() -> None:
    """Five folds: three train, one validates, one tests."""
    rounds = rotations([["a"], ["b"], ["c"], ["d"], ["e", "f"]])
    assert [(r.train, r.dev, r.test) for r in rounds] == [
        (["c", "d", "e", "f"], ["b"], ["a"]),
        (["a", "d", "e", "f"], ["c"], ["b"]),
        (["a", "b", "e", "f"], ["d"], ["c"]),
        (["a", "b", "c"], ["e", "f"], ["d"]),
        (["b", "c", "d"], ["a"], ["e", "f"]),
    ]


@given(IDS, st.integers(3, 6))
def test_no_query_is_tested_by_a_model_that_saw_it(queries: set[str], count: int) -> None:
    rounds = rotations(make_folds(queries, min(count, len(queries))))
    assert sorted(query for r in rounds for query in r.test) == sorted(queries)
    for r in rounds:
        assert not {*r.train} & {*r.dev} | {*r.train} & {*r.test} | {*r.dev} & {*r.test}
        assert {*r.train, *r.dev, *r.test} == queries


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
