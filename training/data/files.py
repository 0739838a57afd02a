"""Reads and writes the files of collections and runs: lines, gzipped or not, JSON, and TREC runs. Damage raises FileError."""

import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from training.data.types import FileError, Run


def open_text(path: Path, mode: str = "r") -> IO[str]:
    """Open a text file to read ("r") or write ("w"); gzipped if its name ends in .gz, with no time stamp: same text, same bytes."""
    if path.suffix != ".gz":
        return path.open(mode, encoding="utf-8")
    return io.TextIOWrapper(gzip.GzipFile(path, f"{mode}b", mtime=0), encoding="utf-8")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1. Raises FileError for a file that is cut short or not text."""
    try:
        with open_text(path) as lines:
            yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise FileError(f"{path}: damaged, copy it again ({error})") from None


def json_lines(path: Path) -> Iterator[tuple[int, str, Any]]:
    """The number, the text and the value of each line. Raises FileError for one that is not JSON."""
    for number, line in numbered_lines(path):
        try:
            yield number, line, json.loads(line)
        except ValueError as error:
            raise FileError(f"{path}: line {number} is not JSON ({error})") from None


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


def read_run(path: Path) -> Run:
    """Read a TREC run (``query Q0 document rank score tag``), gzipped or not. Raises FileError naming a bad line."""
    run: Run = {}
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != 6:
            raise FileError(f"{path}: line {number} has {len(fields)} fields, a TREC run has 6")
        run.setdefault(fields[0], {})[fields[2]] = _score(path, number, fields[4])
    return {query: ranked(scores) for query, scores in run.items()}


def _score(path: Path, number: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise FileError(f"{path}: line {number} has {text!r} where a TREC run has the score")
    return score


def ranked(scores: dict[str, float]) -> dict[str, float]:
    """Sort scores, best first; ties keep their order."""
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def write_run(run: Run, path: Path, tag: str) -> None:
    """Write a TREC run; gzipped if the name ends in .gz."""
    with open_text(path, "w") as out:
        for query, scores in run.items():
            for rank, (document, score) in enumerate(ranked(scores).items(), 1):
                out.write(f"{query} Q0 {document} {rank} {score:.6f} {tag}\n")


def join_runs(paths: Sequence[Path]) -> Run:
    """Join the runs of the test folds. Raises FileError if two of them rank the same query: test folds share none."""
    joined: Run = {}
    for path in paths:
        run = read_run(path)
        if shared := sorted(joined.keys() & run.keys()):
            raise FileError(f"{path}: query {shared[0]} was ranked by a run before it; test folds share no query")
        joined |= run
    return joined
