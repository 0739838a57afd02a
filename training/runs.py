"""Runs: for each query the documents a system ranked, best first. TREC files in and out."""

import gzip
from pathlib import Path

Run = dict[str, dict[str, float]]
"""Scores by query and document; a query's documents are in rank order."""


def read_run(path: Path) -> Run:
    """Read a TREC run (``query Q0 document rank score tag``), gzipped or not. Raises ValueError naming a bad line."""
    run: Run = {}
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    with opened as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if len(fields) != 6:
                raise ValueError(f"{path}: line {number} has {len(fields)} fields, a TREC run has 6")
            run.setdefault(fields[0], {})[fields[2]] = float(fields[4])
    return {query: ranked(scores) for query, scores in run.items()}


def ranked(scores: dict[str, float]) -> dict[str, float]:
    """The same scores, best first; ties stay in the order given."""
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def write_run(run: Run, path: Path, tag: str) -> None:
    """Write a TREC run; gzipped when the name says so."""
    opened = gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8")
    with opened as out:
        for query, scores in run.items():
            for rank, (document, score) in enumerate(ranked(scores).items(), 1):
                out.write(f"{query} Q0 {document} {rank} {score:.6f} {tag}\n")
