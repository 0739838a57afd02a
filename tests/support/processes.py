"""Processes that a test did not start itself: any of them may end at any time."""

from pathlib import Path


def command_of(pid: int) -> str:
    """The command line of a process; "" once it has ended, whether somebody has waited for it or not, and while it begins."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or before it was read
        return ""


def children_of(pid: int) -> list[int]:
    """The processes that the main thread of a process has started, and has not waited for."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
