"""What make audit makes of pip-audit's report, and of none."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from requirements.audit import main

SOUND = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "is not there"}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"], "aliases": [], "description": ""}]}
HOPELESS = {"name": "d", "version": "4", "vulns": [{"id": "PYSEC-2", "fix_versions": [], "aliases": [], "description": ""}]}


@pytest.mark.parametrize(
    ("packages", "code", "problem"),
    [
        ([SOUND, SKIPPED], 0, "2 packages audited, 0 to be moved"),
        ([SOUND, HOPELESS], 0, "d 4: PYSEC-2, not fixed by any version yet"),
        ([HOPELESS, BAD], 1, "c 2: PYSEC-1, fixed in 3"),
    ],
)
def test_only_what_has_a_fix_fails(
    packages: list[dict[str, Any]], code: int, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"dependencies": packages, "fixes": []}))
    assert main([_program(tmp_path, f"cat {report}; exit 1")]) == code
    assert problem in capsys.readouterr().out


def test_without_a_network_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([_program(tmp_path, "echo ERROR: cannot connect >&2; exit 1")]) == 0
    assert capsys.readouterr().err == "nothing was audited: ERROR: cannot connect\n"


def _program(work: Path, does: str) -> str:
    """A pip-audit that answers as it is told to."""
    path = work / "pip-audit"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)
