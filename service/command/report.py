"""What a command has to say beside its output: a line each on stderr, and whether something failed."""

import sys

from service.command.text import visible


class Report:
    """Says things once; remembers failures.

    Attributes:
        failed: whether something that was asked for could not be done.
    """

    def __init__(self, program: str) -> None:
        self.failed = False
        self._program = program
        self._said: set[str] = set()

    def note(self, message: str) -> None:
        """Say something that is good to know."""
        if message not in self._said:
            self._said.add(message)
            print(f"{self._program}: {visible(message)}", file=sys.stderr, flush=True)

    def fail(self, message: str) -> None:
        """Say what could not be done."""
        self.failed = True
        self.note(message)
