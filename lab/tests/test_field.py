"""The field: what each system is trained from, and in which order."""

import argparse
from pathlib import Path

import pytest

from lab.studies import field
from lab.studies.field import RECIPES, SYSTEMS, TITLES, known_records, stage, system, train_system
from training.recipe import load_recipe

RECORDS = Path(__file__).parents[1] / "results" / "field"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, dict[str, str]]]:
    """Of each training: its recipe, its directory, and the keys that are set."""
    seen: list[tuple[str, str, dict[str, str]]] = []

    def train_recipe(recipe: str, collection: str, run: Path, settings: list[str], options: argparse.Namespace) -> None:
        load_recipe(RECIPES / f"{recipe}.yaml", settings)
        seen.append((recipe, str(run), dict(one.split("=", 1) for one in settings)))

    monkeypatch.setattr(field, "train_recipe", train_recipe)
    return seen


def test_idcms_student_learns_from_its_teacher(trained: list[tuple[str, str, dict[str, str]]]) -> None:
    """IDCM's steps 2 and 3, then what unites them; a second stage goes on with each part."""
    options = argparse.Namespace(runs=Path("r"))
    train_system(system("idcm"), stage("articles"), 1, options)
    train_system(system("idcm"), stage("far"), 1, options)
    teacher, student, whole, teacher2, student2, whole2 = trained
    assert teacher == ("idcm-teacher", "r/articles/idcm-1.idcm-teacher", {"seed": "1", "init": "r/vanilla"})
    assert student[2] == {"seed": "1", "distillation.teacher": teacher[1]}
    assert whole[2] == {"seed": "1", "init": teacher[1], "selector_run": student[1]}
    assert teacher2[2] == {"seed": "1", "init": teacher[1]}
    assert student2[2] == {"seed": "1", "distillation.teacher": teacher2[1], "init": student[1]}
    assert whole2 == ("idcm", "r/far/idcm-1", {"seed": "1", "init": teacher2[1], "selector_run": student2[1]})


def test_a_column_alone_needs_the_trainings_before_it(tmp_path: Path) -> None:
    options = argparse.Namespace(runs=tmp_path / "runs", records=tmp_path / "records", columns=["squad-far, fine-tuned"])
    train, further, measure = field.pieces(system("keyb"), 0, options)
    assert train == ["--train", "keyb", "--stage", "articles"]
    assert further == ["--train", "keyb", "--stage", "far"]
    assert measure == ["--measure", "keyb", "--setting", "squad-far, fine-tuned"]


def test_each_system_starts_from_the_shared_start_or_from_words(trained: list[tuple[str, str, dict[str, str]]]) -> None:
    """BeST and MaxP, too: so that their difference is not that of two starts."""
    for one in SYSTEMS:
        train_system(one, stage("articles"), 0, argparse.Namespace(runs=Path("r")))
    starts = {recipe: settings.get("init") for recipe, run, settings in trained if "." not in Path(run).name}
    others = {name for name, init in starts.items() if init != "r/vanilla"}
    assert others == {"idcm", "deeprank", "tkl"}
    assert starts["best"] == starts["maxp-first"] == "r/vanilla"


def test_the_records_are_of_systems_that_have_a_title() -> None:
    found = known_records(RECORDS)
    assert {record.system for record in found} <= set(TITLES)
    assert TITLES["idcm-of-start"] in field.gain_table(found)
