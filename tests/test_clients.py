"""docs/use/clients.md beside what `make test-clients` installs and runs; the clients themselves are tests/clients' matter."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "use" / "clients.md").read_text(encoding="utf-8")
PINS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "requirements" / "clients").glob("*.txt")}
TESTS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "clients").glob("test_*.py")}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| \[(.+?)\]\(#.+?\) \| (.+?) \|", PAGE, re.MULTILINE)


def test_every_snippet_is_run() -> None:
    assert [heading for heading in HEADINGS[1:] if not any(f'"{heading}"' in text for text in TESTS.values())] == []


def test_every_client_has_a_snippet_and_a_row() -> None:
    assert {heading for heading, _ in ROWS} == {*HEADINGS[1:]} - {"cohere, with the blocks", "cohere, with the spans"}
    assert f"{len(ROWS)} of {len(ROWS)} rank them right" in PAGE


def test_the_versions_are_those_installed() -> None:
    first = [line for text in PINS.values() for line in text.split("\n\n")[0].splitlines() if not line.startswith(("#", "pytest"))]
    in_table = {version for _, versions in ROWS for version in re.findall(r"\d+(?:\.\d+)+", versions)}
    assert {pin.split("==")[1] for pin in first} == in_table


def test_every_environment_and_test_is_made_and_run() -> None:
    run = dict(re.findall(r"^TESTS_(\w+) := (.+)$", MAKEFILE, re.MULTILINE))
    assert set(run) == set(PINS)
    assert {f"test_{name}" for names in run.values() for name in names.split()} == set(TESTS)
