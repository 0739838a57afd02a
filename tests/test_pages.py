"""What README.md, docs/ and lab/notes/ name exists: options of commands, settings, metrics, files."""

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from service.settings import Settings
from service.telemetry.metrics import TABLE

ROOT = Path(__file__).parents[1]
USERS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in USERS}
COMMAND = re.compile(r"(?:^|[`\s/])(keyblock-[a-z]+)((?:[^`\n]|\\\n)*)")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
OTHERS = {  # environment variables that are no settings of keyblock-serve
    "KEYBLOCK_API_KEY",
    "KEYBLOCK_BACKBONE",
    "KEYBLOCK_CACHE",
    "KEYBLOCK_TEST_REDIS",
}


@cache
def options_of(command: str) -> set[str]:
    """The options in a command's --help."""
    module, _, function = SCRIPTS[command].partition(":")
    call = [sys.executable, "-c", f"import sys; from {module} import {function}; sys.argv = ['{command}', '--help']; {function}()"]
    shown = subprocess.run(call, capture_output=True, check=True, text=True, env={**os.environ, "COLUMNS": "200"})
    return set(re.findall(r"--[a-z][a-z0-9-]*", shown.stdout))


@pytest.mark.parametrize("page", PAGES)
def test_options_exist(page: str) -> None:
    text = PAGES[page].replace("\\\n", " ")
    unknown = {
        f"{command} {option}"
        for command, rest in COMMAND.findall(text)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", re.split(r"[|#;&]|, and | -- |--patch", rest)[0])
        if command not in SCRIPTS or option not in options_of(command)
    }
    assert unknown == set()


def test_settings_exist() -> None:
    named = {name for text in PAGES.values() for name in re.findall(r"\bKEYBLOCK_[A-Z_]+[A-Z]\b", text)} - OTHERS
    assert {name for name in named if name.removeprefix("KEYBLOCK_").lower() not in Settings.model_fields} == set()


def test_metrics_exist() -> None:
    known = {row.name for row in TABLE.values()}
    known |= {f"{row.name}_{part}" for row in TABLE.values() if row.kind == "histogram" for part in ("bucket", "sum", "count")}
    kinds = re.compile(r"\bkeyblock_[a-z_]+_(?:total|seconds|bytes|ratio|up|away)\b")
    named = {name for text in PAGES.values() for name in kinds.findall(text)}
    assert named - known == set()
