"""What a run tells of itself while it trains: RUN/log.jsonl, and TensorBoard's event files when asked for."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LOG_FILE, EVENTS = "log.jsonl", "tensorboard"


class TrackingError(ValueError):
    """A run cannot be tracked as asked; the message is one line for a person."""


class Tracker:
    """Writes a run's records.

    Args:
        run: the run directory.
        step: how many steps were done before; what TensorBoard was told of later ones no longer counts.
        tensorboard: whether RUN/tensorboard is written too.

    Raises TrackingError when TensorBoard is asked for and not installed.
    """

    def __init__(self, run: Path, step: int = 0, tensorboard: bool = False) -> None:
        self.path = run / LOG_FILE
        _end_line(self.path)
        self._events = _event_writer(run / EVENTS, step) if tensorboard else None

    def record(self, step: int, **what: Any) -> None:
        """One line of the log; numbers, also those in mappings, go to TensorBoard under their path (dev/toy/RR@10)."""
        with self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": step, "time": round(time.time(), 1), **what}) + "\n")
        if self._events:
            for name, number in scalars(what):
                self._events.add_scalar(name, number, step)

    def close(self) -> None:
        """Write out what TensorBoard's writer still holds."""
        if self._events:
            self._events.close()


def _end_line(log: Path) -> None:
    """End a line that a kill or a full disk cut short, so that the next record is not part of it."""
    if not (log.exists() and log.stat().st_size):
        return
    with log.open("rb+") as end:
        end.seek(-1, os.SEEK_END)
        if end.read(1) != b"\n":
            end.write(b"\n")


def scalars(what: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of nested mappings, named by their path."""
    for name, value in what.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def _event_writer(directory: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrackingError("TensorBoard is not installed: pip install tensorboard, or train without --tensorboard") from None
    return SummaryWriter(str(directory), purge_step=step + 1)
