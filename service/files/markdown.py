"""Writes text with Markdown's marks at the beginning of parts, piece by piece."""

import re
from collections.abc import Sequence

_FENCE = re.compile(r"^`{3,}", re.MULTILINE)


class Markdown:
    """A growing text. White space becomes one space; a break only comes between two written parts."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._breaks = 0
        self._space = False
        self._mark = ""

    def __str__(self) -> str:
        return "".join(self._pieces)

    def write(self, text: str) -> None:
        """Write text as a page shows it."""
        words = text.split()
        if not words:
            self._space |= bool(text)
            return
        spaced = self._space or text[0].isspace()
        self._write(" ".join(words), spaced=spaced)
        self._space = text[-1].isspace()

    @property
    def line_ended(self) -> bool:
        """Whether the next text begins a line."""
        return self._breaks > 0 or not self._pieces

    def end_line(self, breaks: int = 1) -> None:
        """Let the next text begin a line; with 2 breaks, after a blank line."""
        self._breaks = max(self._breaks, breaks)

    def begin(self, mark: str) -> None:
        """Let the next text begin a line with this mark."""
        self.end_line()
        self._mark = mark

    def forget_mark(self) -> None:
        """Drop the last mark if nothing was written after it."""
        self._mark = ""

    def write_row(self, cells: Sequence[str], *, is_head: bool) -> None:
        """Write a row of a table; nothing if all its cells are empty."""
        if not any(cells):
            return
        self.forget_mark()
        self.end_line()
        self._write(f"| {' | '.join(cells)} |", spaced=False)
        self.end_line()
        if is_head:
            self._write(f"|{' --- |' * len(cells)}", spaced=False)
            self.end_line()

    def write_code(self, code: str) -> None:
        """Write lines unchanged, between fences that are longer than any inside."""
        lines = code.strip("\r\n").rstrip()
        if not lines:
            return
        fence = max((found[0] + "`" for found in _FENCE.finditer(lines)), key=len, default="```")
        self.forget_mark()
        self.end_line(2)
        self._write(f"{fence}\n{lines}\n{fence}", spaced=False)
        self.end_line(2)

    def _write(self, text: str, *, spaced: bool) -> None:
        if self._pieces and self._breaks:
            self._pieces.append("\n" * self._breaks)
        elif self._pieces and spaced:
            self._pieces.append(" ")
        self._pieces += [self._mark, text]
        self._mark, self._breaks, self._space = "", 0, False
