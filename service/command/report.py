"""Messages of a command beside its output: one line each on stderr, and whether a task failed."""

import sys

from service.command.text import visible

PROGRAM = "keyblock"


class Report:
    """Prints each message once, and remembers failures.

    Attributes:
        failed: whether a requested task could not be done.
    """

    def __init__(self) -> None:
        self.failed = False
        self._reported: set[str] = set()

    def note(self, message: str) -> None:
        """Print a note."""
        if message not in self._reported:
            self._reported.add(message)
            print(f"{PROGRAM}: {visible(message)}", file=sys.stderr, flush=True)

    def fail(self, message: str) -> None:
        """Print what could not be done."""
        self.failed = True
        self.note(message)
