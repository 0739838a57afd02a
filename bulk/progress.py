"""How far a stage is: a bar with the rate and the time left on a terminal, else a line for each tenth."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

LINES = 10  # of a stage, where there is no terminal


class Rate(ProgressColumn):
    """What a second brings, since this process began: what was done before does not count."""

    def render(self, task: Task) -> Text:
        """As a text, or a dash where nothing is known yet."""
        return Text("-" if task.speed is None else f"{task.speed:,.1f}/s")


class Bar:
    """The progress of a stage, on stderr; to be used in a `with` block.

    Args:
        name: the stage's.
        unit: what is counted.
        total: of the stage; none where it is not known.
        done: before this process began.
    """

    def __init__(self, name: str, unit: str, total: int | None, done: int = 0) -> None:
        self._name, self._unit, self._total, self._done, self._new = name, unit, total, done, 0
        self._began = time.perf_counter()
        self._told = self._tenths()
        of_total = "{task.completed:,.0f}" if total is None else "{task.completed:,.0f} of {task.total:,.0f}"
        columns = (TextColumn(f"{name:<8}"), BarColumn(), TextColumn(f"{of_total} {unit}"), Rate(), TimeRemainingColumn())
        self._progress = Progress(
            *columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), speed_estimate_period=300
        )
        self._task = self._progress.add_task("", total=total, completed=done)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def add(self, count: int) -> None:
        """Count what is done."""
        self._done, self._new = self._done + count, self._new + count
        self._progress.advance(self._task, count)
        if self._progress.disable and (tenths := self._tenths()) > self._told:
            self._told = tenths
            print(self._line(), file=sys.stderr, flush=True)

    def note(self, message: str) -> None:
        """A line above the bar."""
        self._progress.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def _tenths(self) -> int:
        return LINES * self._done // self._total if self._total else 0

    def _line(self) -> str:
        rate = self._new / max(time.perf_counter() - self._began, 1e-9)
        left = ((self._total or 0) - self._done) / rate
        return f"{self._name}: {self._done:,} of {self._total:,} {self._unit}, {rate:,.1f}/s, {left:,.0f} s left"
