"""The record of measurements, as JSON. Each part names its run, so that one part can be measured again alone."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keyblock.runtime.cpus import bf16_feature

Record = dict[str, Any]
"""`machine`, `versions`, and `parts` by name. A part has its own fields, and `run`: its date, commit, command and more."""


class RecordError(ValueError):
    """A file is not a record. The message is one line."""


def cpu_name(root: Path = Path("/")) -> str:
    """The name of the CPU."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def machine(threads: int) -> dict[str, Any]:
    """The properties that decide the machine's speed."""
    return {"cpu": cpu_name(), "threads": threads, "bf16": bf16_feature() or "none", "python": platform.python_version()}


def run_of(command: str, sizes: str, texts: str, root: Path) -> dict[str, Any]:
    """The commit, date, load, command, sizes and texts of a part's measurement."""
    git = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git here
        commit = ""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    when = {"commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}", "load": round(load, 1)}
    return {"command": command, "sizes": sizes, "texts": texts, **when}


def read_record(path: Path) -> Record:
    """The record in a file, or an empty one without a file. Raises RecordError."""
    if not path.exists():
        return {"machine": {}, "versions": {}, "parts": {}}
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        if not {"machine", "versions", "parts"} <= record.keys():
            raise ValueError("machine, versions or parts is missing")
    except (ValueError, AttributeError) as error:
        raise RecordError(f"{path}: no record of measurements, remove it to measure again ({error})") from None
    return record


def write_record(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def merged(old: Record, new: Mapping[str, Any]) -> Record:
    """The parts of both records; a new part replaces the old one. Old parts of another machine are dropped."""
    if old["machine"] != new["machine"]:
        return dict(new)
    return {**new, "versions": old["versions"] | new["versions"], "parts": old["parts"] | new["parts"]}
