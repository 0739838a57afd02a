"""Text with the marks of Markdown that say where parts begin: what a page is written into, piece by piece."""

import re
from collections.abc import Sequence

_FENCE = re.compile(r"^`{3,}", re.MULTILINE)


class Markdown:
    """A text that grows. White space is one space; a break comes between what stands before and behind it, and nowhere else."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._breaks = 0
        self._space = False
        self._mark = ""

    def __str__(self) -> str:
        return "".join(self._pieces)

    def write(self, text: str) -> None:
        """Text as a page shows it."""
        words = text.split()
        if not words:
            self._space |= bool(text)
            return
        spaced = self._space or text[0].isspace()
        self._write(" ".join(words), spaced=spaced)
        self._space = text[-1].isspace()

    @property
    def line_ended(self) -> bool:
        """Whether what is written next begins a line."""
        return self._breaks > 0 or not self._pieces

    def end_line(self, breaks: int = 1) -> None:
        """What follows begins a line: the next one, or, with 2 breaks, behind a blank one."""
        self._breaks = max(self._breaks, breaks)

    def begin(self, mark: str) -> None:
        """What is written next begins a line with this mark."""
        self.end_line()
        self._mark = mark

    def forget_mark(self) -> None:
        """The last mark is left out, where nothing was written behind it."""
        self._mark = ""

    def write_row(self, cells: Sequence[str], *, is_head: bool) -> None:
        """A row of a table; nothing where all its cells are empty."""
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
        """Lines as they are, between fences that are longer than any inside."""
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
