"""What all commands of training and export share, and the small ones on the toy."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import keyblock
from keyblock.bundle import Bundle, load_bundle
from tests.conftest import ROOT
from tests.training.collections.passages import write_collection
from tests.training.commands.conftest import Printed, strings
from training.commands.candidates import main as candidates_main
from training.commands.evaluate import main as evaluate_main
from training.commands.prior import main as prior_main
from training.evaluate.measures import MEASURE_SETS


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5"])
def test_invalid_numbers(toy_run: Path, toy_path: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as caught:
        evaluate_main(strings("--run", toy_run, "--collection", toy_path, f"--depth={number}"))
    assert caught.value.code == 2
    assert f"--depth: '{number}' is not a whole number from 1" in capsys.readouterr().err


SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
COMMANDS = {name: target for name, target in SCRIPTS.items() if target.startswith(("training.", "export."))}
SLOW = {"torch", "transformers", "ir_measures", "scipy", "bm25s", "matplotlib", "onnx", "onnxruntime"}  # to import


def test_the_installed_commands_are_these() -> None:
    names = "train calibrate collect evaluate candidates derive prior export import encoder verify".split()
    assert set(COMMANDS) == {f"keyblock-{name}" for name in names}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_version_do_not_wait_for_pytorch(command: str) -> None:
    """What is imported is what costs seconds; the entry point's module is imported as the installed command does."""
    code = f"""
import sys
from {COMMANDS[command].removesuffix(":main")} import main
for option in ("--help", "--version"):
    try:
        main([option])
    except SystemExit as ended:
        assert ended.code == 0
print({SLOW} & set(sys.modules))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0].startswith(f"usage: {command} ")
    assert any("--out" in line for line in said) == (command != "keyblock-verify")
    assert said[-2:] == [f"{command} {keyblock.__version__}", "set()"]


def test_the_help_names_every_set_of_measures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        evaluate_main(["--help"])
    assert f"the sets {' or '.join(MEASURE_SETS)}" in " ".join(capsys.readouterr().out.split())


def test_the_command_reports_what_it_wrote(printed: Printed, toy_path: Path, tmp_path: Path) -> None:
    asked = (candidates_main, "--collection", toy_path, "--split", "dev", "--out", tmp_path / "dev.trec")
    assert printed(*asked) == f"{tmp_path / 'dev.trec'}: 32 candidates of 8 queries\n"
    assert json.loads(printed(*asked, "--json")) == {"queries": 8, "candidates": 32, "out": str(tmp_path / "dev.trec")}


def collection(path: Path) -> Path:
    """Thirty documents for each query: one tells news of it, the others tell news of something else."""
    names = [f"{split}{number}" for split in ("train", "dev") for number in range(12)]
    texts = {name: f"Here are the news of {name}, which {name} brought." for name in names} | {
        f"other{number}": f"Here are the news of nobody, told {number} times." for number in range(18)
    }
    splits = {split: [name for name in names if name.startswith(split)] for split in ("train", "dev")}
    return write_collection(path, texts, {name: [name] for name in names}, splits)


def test_a_bundle_learns_what_promises(printed: Printed, refused: Printed, toy_bundle: Bundle, tmp_path: Path) -> None:
    collections = ("--collection", collection(tmp_path / "a"), "--collection", collection(tmp_path / "b"))
    options = ("--out", tmp_path / "out", "--depth", 40, "--share", 0.2)
    asked = (prior_main, "--bundle", toy_bundle.path, *options, *collections)
    rows = [line.split("|")[1:-1] for line in printed(*asked).splitlines() if line.startswith(("| a ", "| b "))]
    assert [row[2].strip() for row in rows] == ["the fusion's", "learned", "both", "both, learned without it"] * 2
    assert all(cell.strip() == "0.00%" for row in rows if "learned" in row[2] for cell in row[3:])
    manifest = load_bundle(tmp_path / "out").manifest
    assert manifest.pipeline.pre_ranking is not None
    assert manifest.pipeline.pre_ranking.share == 0.2
    assert manifest.pipeline.pre_ranking.prior is not None
    assert manifest.pipeline.pre_ranking.prior.best_block + manifest.pipeline.pre_ranking.prior.top_blocks > 0
    assert manifest.quality["prior"] == {"split": "train", "bar": 20, "queries": {"a": 12, "b": 12}}
    assert "is not empty" in refused(*asked)


def test_what_cannot_be_learned(refused: Printed, toy_bundle: Bundle, tmp_path: Path) -> None:
    options = ("--bundle", toy_bundle.path, "--out", tmp_path / "out", "--collection", collection(tmp_path / "a"))
    assert "--share must be above 0 and at most 1, not 2" in refused(prior_main, *options, "--share", 2)
    assert prior_main(strings(*options, "--measured", "nowhere", "--depth", 40, "--share", 0.2)) == 2
    assert not (tmp_path / "out").exists()
