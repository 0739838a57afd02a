"""keyblock-evaluate --fuse on the toy, whose BM25 ranks the answer last."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from keyblock.bundle import Bundle
from tests.training.commands.running import strings
from training.collections.collection import Collection
from training.collections.runs import read_run
from training.commands.evaluate import main as evaluate_main


@pytest.fixture
def common(toy_bundle: Bundle, toy_path: Path) -> list[str]:
    return strings("--bundle", toy_bundle.path, "--collection", toy_path, "--provider", "cpu", "--queries", 3)


def test_each_fusion_is_a_row_with_what_dev_taught(
    common: list[str], toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first stage ranks the answer last of n, so alone it has 1 / n, and with all weight on it so has the fusion."""
    given = ["mapfuse", "linear", "{name: linear, weight: 1.0}"]
    assert evaluate_main([*common, "--split", "train", "--out", str(tmp_path), "--json", "--fuse", *given]) == 0
    printed = json.loads(capsys.readouterr().out)
    systems = printed["systems"]
    assert list(systems)[:4] == ["toy-bundle", "toy-bundle + mapfuse", "toy-bundle + linear", "toy-bundle + linear-1.0"]
    assert systems["toy-bundle + linear"] == systems["toy-bundle"], "dev taught a weight of 0"
    assert systems["toy-bundle + linear-1.0"] == systems["first stage"] != systems["toy-bundle"]
    assert printed["fusions"]["linear"] == {"name": "linear", "first_stage": "scores", "weight": 0.0}
    assert printed["fusions"]["mapfuse"]["model_map"] == 1.0 > printed["fusions"]["mapfuse"]["first_stage_map"]
    assert printed["fusions_learned_on"] == "dev: mapfuse, linear"
    first = toy.run("train")
    assert all(list(scores) == list(first[query]) for query, scores in read_run(tmp_path / "linear-1.0" / "run.trec.gz").items())


def test_on_dev_a_warning_says_that_the_measured_queries_teach(common: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_main([*common, "--fuse", "mapfuse"]) == 0
    assert "fusions learned on: dev, the queries measured here: mapfuse" in capsys.readouterr().out


def test_a_fusion_with_the_parameters_as_they_are_has_learned_nothing(
    common: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate_main([*common, "--split", "train", "--json", "--fuse", "{name: linear}"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["fusions"]["linear"]["weight"] == 0.5
    assert "fusions_learned_on" not in printed


def test_what_is_no_yaml_is_one_clear_error(common: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        evaluate_main([*common, "--fuse", "{name: linear"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert "argument --fuse: '{name: linear' cannot be read as YAML" in said


def test_fusions_that_cannot_be_measured(refused: Callable[..., str], common: list[str], toy_run: Path, toy_path: Path) -> None:
    assert "unknown fusion with the first stage 'sum'; known: linear" in refused(evaluate_main, *common, "--fuse", "sum")
    assert "--fuse takes names, or " in refused(evaluate_main, *common, "--fuse", "3")
    for twice in (["linear", "{name: linear}"], ["{name: linear, weight: 0.3}"] * 2):  # the second would take the first's row
        assert "--fuse has two that are called linear" in refused(evaluate_main, *common, "--fuse", *twice)
    runs = ("--run", toy_run, "--run", toy_run, "--collection", toy_path)
    assert "--fuse is of one run" in refused(evaluate_main, *runs, "--fuse", "linear")
    ranked = ("--ranked", toy_path / "run.dev.bm25.trec", "--collection", toy_path)
    assert "a --ranked run is not of: give it with parameters" in refused(evaluate_main, *ranked, "--fuse", "linear")
