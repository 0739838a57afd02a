"""Runs: for each query the documents that a system ranked, best first. Reads and writes TREC files."""

import math
from collections.abc import Sequence
from pathlib import Path

from training.collections.lines import numbered_lines, open_text
from training.collections.types import FileError, Run


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
