import subprocess
import sys
from pathlib import Path

import pytest

from export.cli import main
from export.exporter import SAMPLE
from keyblock import __version__
from keyblock.bundle import load_bundle


def export(*arguments: str | Path) -> int:
    return main([str(argument) for argument in (*arguments, "--provider", "cpu", "--queries", 2, "--depth", 2)])


def test_a_run_is_exported_and_summed_up(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bundle"
    assert export(run, "--out", out, "--collection", SAMPLE, "--name", "mine") == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{out}: ")
    assert "'Attention': 1" in printed
    assert '"nDCG@10 lost"' in printed
    assert load_bundle(out).manifest.name == "mine"
    assert export(run, "--out", out, "--precision", "fp32", "--overwrite") == 0
    assert load_bundle(out).manifest.graph.precision == "fp32"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{tmp}/none", "--out", "{tmp}/bundle"], "none: has no pipeline.json"),
        (["{run}", "--out", "{run}"], "is not empty"),
        (["{run}", "--out", "{tmp}/bundle", "--collection", "{tmp}/none"], "no such collection directory"),
        (["{run}", "--out", "{tmp}/bundle", "--collection", "{tmp}"], "has no splits/dev.txt"),
    ],
)
def test_errors_that_a_person_can_mend_are_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert export(*(argument.format(tmp=tmp_path, run=run) for argument in arguments)) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("keyblock-export: ")
    assert expected in said[0]


@pytest.mark.parametrize("command", ["", "import", "verify", "encoder"])
def test_help_and_version_do_not_wait_for_pytorch(command: str) -> None:
    """Importing what exports takes seconds."""
    code = f"""
import sys
from export.{f"{command}_cli" if command else "cli"} import main
for option in ("--help", "--version"):
    try:
        main([option])
    except SystemExit as ended:
        assert ended.code == 0
print({{"torch", "transformers", "onnx", "onnxruntime", "scipy"}} & set(sys.modules))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0].startswith(f"usage: keyblock-{command or 'export'} ")
    assert said[-2:] == [f"keyblock-{command or 'export'} {__version__}", "set()"]
