"""The rules of the house that a machine can check over every file of the repository."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LARGEST_FILE = 2_000_000
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|tmp/w|home/\w+)/")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b|\bNotImplementedError\b")


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """Every tracked file."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("git, or this checkout's .git, is not here to list the files")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="module")
def texts(files: list[Path]) -> dict[str, str]:
    """The text of every tracked file that is text, by its name, but for this one (it spells what it looks for)."""
    found = {}
    for path in files:
        content = path.read_bytes() if path.stat().st_size <= LARGEST_FILE else b"\0"
        if b"\0" not in content and path != Path(__file__).resolve():
            found[str(path.relative_to(ROOT))] = content.decode("utf-8")
    return found


@pytest.mark.parametrize("pattern", [MACHINE_PATH, UNFINISHED], ids=["path of a machine", "unfinished"])
def test_nothing_is_left_behind(texts: dict[str, str], pattern: re.Pattern[str]) -> None:
    lines = [(name, number, line) for name, text in texts.items() for number, line in enumerate(text.splitlines(), 1)]
    assert [f"{name}:{number}: {line.strip()[:100]}" for name, number, line in lines if pattern.search(line)] == []


def test_only_models_are_large(files: list[Path]) -> None:
    large = [path.relative_to(ROOT) for path in files if path.stat().st_size > LARGEST_FILE]
    assert [str(path) for path in large if path.parts[0] != "models"] == []


def test_the_changelog_knows_the_version() -> None:
    from keyblock import __version__

    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0] == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_drawing_of_the_packages_is_that_of_their_imports() -> None:
    """If it is stale: python -m benchmarks.house --draw."""
    from benchmarks.house import drawing

    assert drawing(ROOT) in (ROOT / "docs" / "develop" / "architecture.md").read_text(encoding="utf-8")
