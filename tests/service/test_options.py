import re
import subprocess
import sys
from pathlib import Path

import pytest

from keyblock import __version__
from service.options import flag, parse, parser, unknown_variables, variable
from service.settings import Settings
from tests.service.faults import PATIENCE

HEAVY = ("onnxruntime", "fastapi", "starlette", "uvicorn", "numpy", "tokenizers")


def entries() -> dict[str, str]:
    """The help of each flag, by the flag's name."""
    parts = re.split(r"\n  (?=--)", parser().format_help())
    return {part.split(maxsplit=1)[0].rstrip(","): " ".join(part.split()) for part in parts[1:]}


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_help_names_each_setting_and_its_variable(name: str) -> None:
    assert f"[{variable(name)}" in entries()[flag(name)]


def test_help_is_in_plain_words() -> None:
    shown = entries()
    assert shown["--port"] == "--port NUMBER port to listen on; 0 takes a free one [KEYBLOCK_PORT; default 8000]"
    assert shown["--provider"].startswith("--provider {cuda,tensorrt,openvino,cpu,auto} ")
    assert shown["--bundle"].endswith("[KEYBLOCK_BUNDLE; default the embedded model]")
    assert shown["--playground"].endswith("[KEYBLOCK_PLAYGROUND; on by default]")
    assert not re.search(r"tuple|Optional|Secret|Path\b|\bint\b|\bstr\b|None|Annotated", parser().format_help())


def test_help_loads_neither_the_runtime_nor_the_web_framework() -> None:
    code = f"import sys; from service.cli import main\ntry: main(['--help'])\nfinally: print(*{{*sys.modules}} & {{*{HEAVY}}})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "--bundle PATH" in shown.stdout
    assert shown.stdout.splitlines()[-1] == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse(["--version"])
    assert capsys.readouterr().out == f"keyblock-serve {__version__}\n"


def test_an_unknown_flag_is_reported_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["--prot", "1"])
    usage, error = capsys.readouterr().err.splitlines()
    assert "keyblock-serve --help lists the options" in usage
    assert error == "keyblock-serve: error: unrecognized arguments: --prot 1"


def test_variables_of_the_other_commands_are_known() -> None:
    root = Path(__file__).parents[2]
    code = [file.read_text() for package in ("service/command", "training", "export") for file in (root / package).rglob("*.py")]
    names = {name for text in code for name in re.findall(r'"(KEYBLOCK_[A-Z_]+)"', text)}
    assert {"KEYBLOCK_API_KEY", "KEYBLOCK_BACKBONE"} < names
    assert unknown_variables(names) == {}


def test_unknown_variables() -> None:
    known = ["KEYBLOCK_PORT", "keyblock_port", "KEYBLOCK_CI", "KEYBLOCK_CACHE", "KEYBLOCK_API_KEY", "PATH", "PORT"]
    assert unknown_variables(known) == {}
    wrong = ["KEYBLOCK_PROT", "KEYBLOCK_MAX_DOCUMENT", "KEYBLOCK_QQQ"]
    assert unknown_variables([*known, *wrong]) == {
        "KEYBLOCK_MAX_DOCUMENT": "KEYBLOCK_MAX_DOCUMENTS",
        "KEYBLOCK_PROT": "KEYBLOCK_PORT",
        "KEYBLOCK_QQQ": "",
    }
