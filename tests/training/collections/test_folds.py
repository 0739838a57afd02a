"""Folds: every query tested once by a model that never saw it; rounds of cross-validation over described folds."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.collections.descriptions import BASIC
from training.data.collection import Collection
from training.data.folds import make_folds, rotations

IDS = st.sets(st.text("abcdef0123", min_size=1), min_size=3, max_size=40)


@given(IDS, st.integers(3, 6), st.integers(0, 3), st.randoms())
def test_every_query_is_dealt_once_and_alike(queries: set[str], count: int, seed: int, rng: object) -> None:
    count = min(count, len(queries))
    folds = make_folds(queries, count, seed)
    assert sorted(query for fold in folds for query in fold) == sorted(queries)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    assert make_folds(sorted(queries, reverse=True), count, seed) == folds


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


def test_folds_that_are_dealt(describe: Callable[..., Collection]) -> None:
    """Each query is tested once, and never by what trained on it."""
    part = BASIC["splits"]["train"]
    rounds = [describe(f"#{n}", folds=3, splits={"all": part}) for n in (1, 2, 3)]
    assert sorted(query for c in rounds for query in c.split("test")) == list("123456")
    for one, after in zip(rounds, rounds[1:] + rounds[:1], strict=True):
        assert one.split("dev") == after.split("test")
        assert sorted(one.split("train") + one.split("dev") + one.split("test")) == list("123456")
        assert list(one.run("dev")) == one.split("dev")
    assert [c.name for c in rounds] == ["hand-fold-1", "hand-fold-2", "hand-fold-3"]
    first = describe(folds=3, splits={"all": part})
    assert (first.name, first.split("test")) == ("hand", rounds[0].split("test"))
    assert first.split("all") == list("123456")


def test_folds_that_are_splits(describe: Callable[..., Collection], files: Path) -> None:
    lines = (files / "qrels.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    splits = {}
    for fold in ("a", "b", "c", "d"):
        mine = [line for line in lines if line[0] in {"a": "12", "b": "34", "c": "5", "d": "6"}[fold]]
        (files / f"{fold}.txt").write_text("".join(mine), encoding="utf-8")
        splits[fold] = {"queries": {"path": "topics.txt"}, "qrels": f"{fold}.txt"}
    second = describe("#2", folds=list("abcd"), splits=splits)
    assert (second.split("test"), second.split("dev"), second.split("train")) == (["3", "4"], ["5"], ["1", "2", "6"])
    assert list(second.run("train")) == ["1", "2", "6"]
