"""Rounds of cross-validation over described folds."""

from collections.abc import Callable
from pathlib import Path

from tests.training.collections.descriptions import BASIC
from training.collections.collection import Collection


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
    plan = second.parts.plan(["train", "dev"])
    assert "split train: round 2 of 4, of a, d" in plan.reads
    assert [line.partition(":")[0] for line in plan.reads[-3:]] == ["split a", "split d", "split c"]
