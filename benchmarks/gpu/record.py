"""A part's record: a JSON file that is rewritten after each row, so that an interrupted part keeps its rows."""

import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.performance.record import RecordError, run_of, write_record

Row = dict[str, Any]
"""A row of measurements. `table` names its table."""
ROOT = Path(__file__).resolve().parents[2]


class State(StrEnum):
    """How a part ended."""

    MEASURED = "measured"
    CUT_OFF = "cut off"
    FAILED = "failed"
    LEFT_OUT = "left out"


class Setup(TypedDict):
    """The set-up. All parts of a page must have the same."""

    device: str
    provider: str
    sizes: str


class PartRecord(TypedDict):
    """The record of a part.

    `why`: the reason if the part is incomplete, else empty. `run`: see `benchmarks.performance.record.run_of`. `seconds`: its time.
    """

    part: str
    state: str
    why: str
    setup: Setup
    run: dict[str, Any]
    seconds: float
    rows: list[Row]


def new_record(part: str, setup: Setup, state: State, why: str) -> PartRecord:
    """A record without rows."""
    run = run_of(f"python -m benchmarks.gpu --provider {setup['provider']}", setup["sizes"], "invented", ROOT)
    return {"part": part, "state": state, "why": why, "setup": setup, "run": run, "seconds": 0.0, "rows": []}


def write(records: Path, record: PartRecord) -> None:
    """Write a record, whole or not at all."""
    write_record(records / f"{record['part']}.json", dict(record))


def read(records: Path, part: str) -> PartRecord | None:
    """The record of a part; None without a file. Raises RecordError for a file that is not a record."""
    path = records / f"{part}.json"
    if not path.exists():
        return None
    try:
        record: PartRecord = json.loads(path.read_text(encoding="utf-8"))
        if record["part"] != part or (State(record["state"]) is State.MEASURED and not record["rows"]):
            raise ValueError("of another part, or measured without a row")
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: no record of a part, remove it to measure again ({error})") from None
    return record


def read_all(records: Path, parts: Iterable[str]) -> dict[str, PartRecord]:
    """The existing records, by part, in this order. Raises RecordError."""
    known = {part: read(records, part) for part in parts}
    return {part: record for part, record in known.items() if record is not None}
