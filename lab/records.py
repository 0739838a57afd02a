"""Records: the measurements of one system on one collection, each in a small JSON file. Long tables resume from them."""

import json
import os
import re
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from training.data.types import FileError
from training.evaluate.evaluate import Evaluation
from training.evaluate.measures import Values, means
from training.recipe import problems

DECIMALS = 6


class Record(BaseModel):
    """One system on one split of one collection. Values of several seeds are their mean per query."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    system: str = Field(min_length=1)
    collection: str = Field(min_length=1)
    split: str
    seeds: int = Field(1, ge=1)
    steps: int | None = Field(None, description="optimizer steps of the training measured here; None without training")
    training_seconds: float | None = None
    ms_per_document: float | None = Field(None, description="milliseconds to re-rank a document, median over the queries")
    peak_mb: float | None = Field(None, description="peak memory of the evaluation: the GPU's when there is one, else resident")
    details: dict[str, Any] = Field({}, description="whatever else the table shows")
    queries: list[str]
    values: dict[str, list[float]] = Field(description="by measure, in the order of `queries`")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for measure, column in self.values.items():
            if len(column) != len(self.queries):
                raise ValueError(f"{measure} has {len(column)} values for {len(self.queries)} queries")
        return self

    @property
    def by_query(self) -> Values:
        """Values by measure and query."""
        return {measure: dict(zip(self.queries, column, strict=True)) for measure, column in self.values.items()}

    @property
    def means(self) -> dict[str, float]:
        """The mean of each measure over the queries."""
        return means(self.by_query)


def record_evaluation(evaluation: Evaluation, collection: str, split: str, **costs: Any) -> Record:
    """The record of an evaluation; `costs` are further fields of Record: steps, training_seconds, details, or another `system`."""
    measured = {
        "system": evaluation.name,
        "seeds": evaluation.seeds,
        "ms_per_document": evaluation.ms_per_document,
        "peak_mb": evaluation.memory.peak_mb,
        "queries": list(next(iter(evaluation.values.values()))),
        "values": {m: [round(v, DECIMALS) for v in by_query.values()] for m, by_query in evaluation.values.items()},
    }
    return Record(collection=collection, split=split, **(measured | costs))


def record_path(directory: Path, collection: str, system: str) -> Path:
    """The path of a system's record: DIRECTORY/COLLECTION/SYSTEM.json, without characters that some file systems refuse."""
    plain = [re.sub(r"[^\w.-]+", "-", name).strip("-.") for name in (collection, system)]
    return directory / plain[0] / f"{plain[1]}.json"


def write_record(record: Record, directory: Path) -> Path:
    """Write a record, whole or not at all, with one field a line, so that diffs are readable. Returns its path.

    Raises ValueError if another system's record has that file name.
    """
    path = record_path(directory, record.collection, record.system)
    if path.exists() and (other := read_record(path).system) != record.system:
        raise ValueError(f"{path}: holds the record of {other!r}; call {record.system!r} something that differs in letters")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in record.model_dump(mode="json").items()
    ]
    partial = path.with_suffix(".part")
    partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(partial, path)
    return path


def read_record(path: Path) -> Record:
    """Read what `write_record` wrote. Raises FileError when it is damaged."""
    try:
        return Record.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        why = problems(error) if isinstance(error, ValidationError) else error
        raise FileError(f"{path}: no record of a measurement, remove it to measure again ({why})") from None


def read_records(directory: Path) -> list[Record]:
    """All records of a directory, sorted by file name."""
    return [read_record(path) for path in sorted(directory.glob("*/*.json"))]
