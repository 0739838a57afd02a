"""What all training commands share."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import keyblock
from tests.conftest import ROOT
from tests.training.commands.running import strings
from training.commands.evaluate import main as evaluate_main
from training.evaluate.measures import MEASURE_SETS


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5"])
def test_invalid_numbers(toy_run: Path, toy_path: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as caught:
        evaluate_main(strings("--run", toy_run, "--collection", toy_path, f"--depth={number}"))
    assert caught.value.code == 2
    assert f"--depth: '{number}' is not a whole number from 1" in capsys.readouterr().err


COMMANDS = ["train", "calibrate", "collect", "evaluate", "candidates", "derive", "prior", "vectors"]
SLOW = {"torch", "transformers", "ir_measures", "scipy", "bm25s", "matplotlib"}  # to import


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_version_do_not_wait_for_pytorch(command: str) -> None:
    """What is imported is what costs seconds; the entry point's module is imported as the installed command does."""
    code = f"""
import sys
from training.commands.{command} import main
for option in ("--help", "--version"):
    try:
        main([option])
    except SystemExit as ended:
        assert ended.code == 0
print({SLOW} & set(sys.modules))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0].startswith(f"usage: keyblock-{command} ")
    assert any("--out" in line for line in said)
    assert said[-2:] == [f"keyblock-{command} {keyblock.__version__}", "set()"]


def test_the_installed_commands_are_these() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    ours = {name: module for name, module in scripts.items() if module.startswith("training.")}
    assert ours == {f"keyblock-{command}": f"training.commands.{command}:main" for command in COMMANDS}


def test_the_help_names_every_set_of_measures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        evaluate_main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"the sets {' or '.join(MEASURE_SETS)}" in said
