"""Calling a command as a test does, and reading what it printed."""

from collections.abc import Callable, Sequence

Main = Callable[[Sequence[str] | None], int]
Printed = Callable[..., str]
"""What a command prints that is run with these arguments: see the fixtures `printed` and `refused`."""


def strings(*arguments: object) -> list[str]:
    return [str(argument) for argument in arguments]


def cells(printed: str) -> dict[str, list[str]]:
    """The printed table: cells by the system's name."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}
