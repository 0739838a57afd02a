"""TREC runs in and out."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.files import join_runs, ranked, read_run, write_run
from training.data.types import FileError

NAMES = st.text("abc-_.:éß#", min_size=1, max_size=6)
RUNS = st.dictionaries(NAMES, st.dictionaries(NAMES, st.floats(-1e3, 1e3), min_size=1, max_size=8), max_size=4)


def test_rank_order_is_that_of_the_scores(tmp_path: Path) -> None:
    path = tmp_path / "x.trec"
    path.write_text("q Q0 a 1 0.5 t\nq\tQ0\tb 2 -inf t\n\nq Q0 c 3 2e0 t\np Q0 a 1 1 t\n", encoding="utf-8")
    run = read_run(path)
    assert {query: list(scores.items()) for query, scores in run.items()} == {
        "q": [("c", 2.0), ("a", 0.5), ("b", -math.inf)],
        "p": [("a", 1.0)],
    }


def test_ties_stay_in_the_order_given() -> None:
    assert list(ranked({"b": 1.0, "z": 2.0, "a": 1.0, "c": 1.0})) == ["z", "b", "a", "c"]


def test_what_is_written(tmp_path: Path) -> None:
    write_run({"q": {"a": 0.25, "b": 3.0, "c": -math.inf}}, tmp_path / "x.trec", "tag")
    assert (tmp_path / "x.trec").read_text(encoding="utf-8") == "q Q0 b 1 3.000000 tag\nq Q0 a 2 0.250000 tag\nq Q0 c 3 -inf tag\n"


@given(RUNS)
def test_order_survives_the_file_even_where_rounding_makes_ties(tmp_path_factory: pytest.TempPathFactory, run: dict) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.trec.gz"
    write_run(run, path, "x")
    back = read_run(path)
    assert {q: list(scores) for q, scores in back.items()} == {q: list(ranked(scores)) for q, scores in run.items()}
    assert all(back[q][d] == pytest.approx(run[q][d], abs=1e-6) for q in run for d in run[q])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("q Q0 d 1 0.5", "line 2 has 5 fields"),
        ("q Q0 a document 1 0.5 t", "line 2 has 7 fields"),
        ("q Q0 d 1 best t", "line 2 has 'best' where a TREC run has the score"),
        ("q Q0 d 1 nan t", "line 2 has 'nan' where"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "bad.trec"
    path.write_text(f"q Q0 d 1 1.0 t\n{line}\n", encoding="utf-8")
    with pytest.raises(FileError, match=said):
        read_run(path)


def test_test_folds_join(tmp_path: Path) -> None:
    runs = [{"a": {"x": 2.0, "y": 1.0}}, {"b": {"x": 1.0}}, {"c": {"z": 3.0}, "a": {"y": 1.0}}]
    paths = [tmp_path / f"{number}.trec" for number in range(3)]
    for run, path in zip(runs, paths, strict=True):
        write_run(run, path, "tag")
    assert join_runs(paths[:2]) == runs[0] | runs[1]
    with pytest.raises(FileError, match="query a was ranked by a run before it"):
        join_runs(paths)
