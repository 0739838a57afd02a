"""Shows the progress of a stage: on a terminal a bar with the rate and the time left, else a line for each tenth."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

LINES = 10  # lines per stage without a terminal


class Rate(ProgressColumn):
    """Units per second in this process; work of earlier processes does not count."""

    def render(self, task: Task) -> Text:
        """The rate as text, or a dash if it is not known yet."""
        return Text("-" if task.speed is None else f"{task.speed:,.1f}/s")


class Bar:
    """The progress of a stage, on stderr; to be used in a `with` block.

    Args:
        name: the stage's name.
        unit: the counted unit.
        total: units of the stage; None if the number is not known.
        done: units that earlier processes did.
    """

    def __init__(self, name: str, unit: str, total: int | None, done: int = 0) -> None:
        self._name, self._unit, self._total, self._done, self._new = name, unit, total, done, 0
        self._began = time.perf_counter()
        self._shown_tenths = self._tenths()
        count = "{task.completed:,.0f}" if total is None else "{task.completed:,.0f} of {task.total:,.0f}"
        columns = (TextColumn(f"{name:<8}"), BarColumn(), TextColumn(f"{count} {unit}"), Rate(), TimeRemainingColumn())
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
        """Count finished units."""
        self._done, self._new = self._done + count, self._new + count
        self._progress.advance(self._task, count)
        if self._progress.disable and (tenths := self._tenths()) > self._shown_tenths:
            self._shown_tenths = tenths
            print(self._line(), file=sys.stderr, flush=True)

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def _tenths(self) -> int:
        return LINES * self._done // self._total if self._total else 0

    def _line(self) -> str:
        rate = self._new / max(time.perf_counter() - self._began, 1e-9)
        left = ((self._total or 0) - self._done) / rate
        return f"{self._name}: {self._done:,} of {self._total:,} {self._unit}, {rate:,.1f}/s, {left:,.0f} s left"
