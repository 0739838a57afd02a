"""Seeds of one system: which runs they are, and their mean per query by hand."""

from pathlib import Path

import pytest

from training.evaluate.measures import mean_over_seeds, seed_runs


def make_run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "pipeline.json").write_text("{}", encoding="utf-8")
    return path


def test_a_run_stands_for_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    make_run(run / "inner")
    assert seed_runs(run) == [run]


def test_a_directory_of_runs_stands_for_these(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"seed-{seed}") for seed in (2, 1)]
    (tmp_path / "notes").mkdir()
    assert seed_runs(tmp_path) == sorted(runs)


def test_a_path_without_a_run_is_left_to_its_reader(tmp_path: Path) -> None:
    assert seed_runs(tmp_path) == [tmp_path]
    assert seed_runs(tmp_path / "nowhere") == [tmp_path / "nowhere"]


def test_the_mean_per_query_by_hand() -> None:
    seeds = [
        {"RR@10": {"a": 1.0, "b": 0.0}, "P@1": {"a": 1.0, "b": 0.0}},
        {"RR@10": {"b": 0.5, "a": 0.5}, "P@1": {"a": 0.0, "b": 0.0}},
    ]
    assert mean_over_seeds(seeds) == {"RR@10": {"a": 0.75, "b": 0.25}, "P@1": {"a": 0.5, "b": 0.0}}
    assert mean_over_seeds(seeds[:1]) == seeds[0]


@pytest.mark.parametrize("other", [{"RR@10": {"a": 1.0}}, {"RR@10": {"a": 1.0, "b": 0.0, "c": 0.0}}, {"P@1": {"a": 1.0, "b": 0.0}}])
def test_seeds_measured_otherwise_have_no_mean(other: dict[str, dict[str, float]]) -> None:
    with pytest.raises(ValueError, match="on the same queries, by the same measures"):
        mean_over_seeds([{"RR@10": {"a": 1.0, "b": 0.0}}, other])
