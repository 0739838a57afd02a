"""Quality by budget: what is missing, and the table, from records alone."""

import argparse
from pathlib import Path

import pytest

from benchmarks import budgets
from training.evaluation.records import Record, read_records, write_record
from training.recipe import load_recipe


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    made = budgets.parser().parse_args(["--data", str(tmp_path), "--records", str(tmp_path / "budgets"), "--runs", str(tmp_path)])
    made.records.mkdir()
    return made


def write(options: argparse.Namespace, system: str, collection: str, budget: int, qualities: list[float]) -> None:
    values = dict.fromkeys(budgets.MEASURES, qualities)
    queries = [f"q{number}" for number in range(len(qualities))]
    place = budgets.cell(collection, budget)
    asked = {"steps": options.steps, "details": {"depth": options.depth}}
    write_record(Record(system=system, collection=place, split="dev", queries=queries, values=values, **asked), options.records)


def test_every_budget_of_the_mixed_model_and_one_of_each_other_is_due(options: argparse.Namespace) -> None:
    write(options, "mixed", "qmsum", 256, [1, 0])
    write(options, "its own", "qmsum", 256, [1, 0])
    assert ("qmsum", 256) not in [*budgets.missing("mixed", options), *budgets.missing("256", options)]
    assert len(list(budgets.missing("mixed", options))) == 8
    assert list(budgets.missing("256", options)) == [("squad-far", 256), ("squad-articles", 256)]
    assert list(budgets.missing("512", options)) == [(name, 512) for name in budgets.COLLECTIONS]


def test_what_was_measured_otherwise_is_due_again(options: argparse.Namespace) -> None:
    write(options, "its own", "qmsum", 256, [1, 0])
    for changed in ({"depth": options.depth + 1}, {"steps": options.steps + 1}):
        other = argparse.Namespace(**vars(options) | changed)
        assert ("qmsum", 256) in budgets.missing("256", other)


def test_a_run_with_another_number_of_steps_is_an_error(options: argparse.Namespace) -> None:
    run = options.runs / "budget-256"
    run.mkdir(parents=True)
    (run / "log.jsonl").write_text('{"step": 1, "loss": 0.5, "seconds": 1.0}\n')
    (run / "finished").touch()
    with pytest.raises(SystemExit, match="was trained for 1 steps, not 700"):
        budgets.train("256", options)


def test_models_are_compared_on_the_same_queries_only(options: argparse.Namespace) -> None:
    write(options, "mixed", "qmsum", 128, [1, 0.5, 0.75])
    write(options, "its own", "qmsum", 128, [0.5, 0])
    assert budgets.tested({(r.collection, r.system): r for r in read_records(options.records)}) == {}


def test_the_recipe_trains_every_budget() -> None:
    recipe = load_recipe(budgets.RECIPE)
    assert tuple(recipe.budgets) == budgets.BUDGETS
    assert set(recipe.mixture) == set(budgets.COLLECTIONS)
    assert recipe.pipeline.packing.budget_range == (128, 512)
    assert load_recipe(budgets.RECIPE, ["budgets={512: 1.0}"]).budgets == {512: 1.0}


def test_the_table_has_both_models_of_each_budget_and_tests_their_difference(options: argparse.Namespace) -> None:
    write(options, "BM25", "qmsum", 128, [0, 0.25, 0])
    write(options, "mixed", "qmsum", 128, [1, 0.5, 0.75])
    write(options, "its own", "qmsum", 128, [0.5, 0, 0.25])
    write(options, "mixed", "squad-far", 512, [1, 1, 1])
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in budgets.table(read_records(options.records)).splitlines()]
    head, _, first_stage, *rows = lines
    assert head[-3:] == ["qmsum, RR@10", "qmsum, nDCG@10", "qmsum, p"]
    assert [row[:2] for row in rows] == [[str(b), model] for b in budgets.BUDGETS for model in ("mixed", "its own")]
    assert first_stage[-3:] == ["0.083", "0.083", ""]
    assert rows[0][-3:] == ["0.750", "0.750", ""]
    assert rows[1][-3:] == ["0.250", "0.250", "< 1e-300"]  # the same half at every query
    assert rows[4][2:5] == ["1.000", "1.000", ""]
    assert rows[5][2:] == [""] * 9
