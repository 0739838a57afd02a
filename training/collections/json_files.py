"""JSON files of a run."""

import json
import os
from pathlib import Path
from typing import Any

from training.collections.types import FileError


def read_json(path: Path) -> dict[str, Any]:
    """Read a run's JSON object. Raises FileError when it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(f"{path}: damaged, no JSON ({error})") from None
    if not isinstance(value, dict):
        raise FileError(f"{path}: damaged, no JSON object")
    return value


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON; the file is replaced whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
