"""Calling commands that must succeed or fail, and reading what they print."""

from collections.abc import Callable, Sequence

import pytest

Main = Callable[[Sequence[str] | None], int]
Printed = Callable[..., str]
"""What a command prints that is run with these arguments: see the fixtures `printed` and `refused`."""


def strings(*arguments: object) -> list[str]:
    return [str(argument) for argument in arguments]


def cells(printed: str) -> dict[str, list[str]]:
    """The printed table: cells by the system's name."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs a command that must succeed; gives what it prints."""

    def run(main: Main, *arguments: object) -> str:
        capsys.readouterr()
        assert main(strings(*arguments)) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs a command that must fail in one line; gives the line."""

    def run(main: Main, *arguments: object) -> str:
        capsys.readouterr()
        assert main(strings(*arguments)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        progress = ("prepare: ", "teacher: ")  # of documents that no test before it has prepared
        lines = [line for line in said.err.splitlines() if line and not line.startswith(progress)]
        assert len(lines) == 1
        assert lines[0].startswith("keyblock-")
        return f"{lines[0]}\n"

    return run
