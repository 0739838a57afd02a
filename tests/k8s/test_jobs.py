"""The commands of the Jobs are commands, with flags that they know and recipes that are there."""

from collections.abc import Callable

import pytest

from export.cli import main as export_main
from tests.conftest import ROOT
from tests.k8s.manifests import Manifest, containers, one, pods
from training.commands.calibrate import main as calibrate_main
from training.commands.train import main as train_main


def commands(built: dict[str, list[Manifest]]) -> dict[str, list[str]]:
    jobs = dict(pods(built["jobs/one-gpu"]))
    found = {one["name"]: one["command"] for pod in jobs.values() for one in containers(pod)}
    trainer = one(built["jobs/several-gpus"], "TrainJob", "keyblock-train")["spec"]["trainer"]
    return found | {"several": trainer["command"][2:] + trainer["args"]}


def test_the_jobs_train_by_a_recipe_calibrate_and_export(built: dict[str, list[Manifest]]) -> None:
    found = commands(built)
    assert {name: command[0] for name, command in found.items()} == {
        "train": "keyblock-train",
        "several": "keyblock-train",
        "calibrate": "keyblock-calibrate",
        "export": "keyblock-export",
    }
    assert found["several"] == found["train"], "one GPU and several do the same"
    assert found["train"][-1] == found["calibrate"][2] == found["export"][1], "one run"
    assert found["train"][1].startswith("/training/recipes/")
    assert (ROOT / found["train"][1].removeprefix("/")).is_file(), "the recipe is in the image"


@pytest.mark.parametrize(
    ("name", "main"),
    [("train", train_main), ("calibrate", calibrate_main), ("export", export_main)],
    ids=["train", "calibrate", "export"],
)
def test_their_flags_are_known(
    built: dict[str, list[Manifest]], capsys: pytest.CaptureFixture[str], name: str, main: Callable[[list[str]], int]
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    help_text = capsys.readouterr().out
    assert [argument for argument in commands(built)[name] if argument.startswith("--") and argument not in help_text] == []


def test_a_job_that_was_killed_goes_on(built: dict[str, list[Manifest]]) -> None:
    """A wrong recipe ends with 2 and is not tried again; what a node's end has stopped is."""
    rules = one(built["jobs/one-gpu"], "Job", "keyblock-train")["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["action"] == "FailJob"
    assert rules[0]["onExitCodes"]["values"] == [2]
    assert rules[1]["action"] == "Ignore"
    assert [condition["type"] for condition in rules[1]["onPodConditions"]] == ["DisruptionTarget"]
