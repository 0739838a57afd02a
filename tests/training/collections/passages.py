"""Small collections of passages, written in place."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.data.files import open_text


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with open_text(path, "w") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def write_collection(
    path: Path,
    texts: Mapping[str, str],
    relevant: Mapping[str, Sequence[str]],
    splits: Mapping[str, Sequence[str]],
    spans: Sequence[tuple[str, str, int, int]] = (),
) -> Path:
    """A collection directory; queries are `news of ID`, and `relevant` names the documents of each."""
    (path / "splits").mkdir(parents=True)
    write_rows(path / "corpus.jsonl", [{"_id": name, "title": "a title", "text": text} for name, text in texts.items()])
    write_rows(path / "queries.jsonl", [{"_id": query, "text": f"news of {query}"} for query in relevant])
    rows = [f"{query}\t0\t{document}\t1\n" for query, documents in relevant.items() for document in documents]
    (path / "qrels.tsv").write_text("".join(rows))
    for name, queries in splits.items():
        (path / "splits" / f"{name}.txt").write_text("\n".join(queries) + "\n")
    if spans:
        write_rows(path / "spans.jsonl", [{"qid": q, "docid": d, "start": s, "end": e} for q, d, s, e in spans])
    return path


def write_passages(path: Path) -> Path:
    """400 passages of 3 to 12 words, each with words of its own.

    The ten queries of train and the ten of dev have a relevant passage each; t0 has two, t1 shares one of these, and t2 has
    none; d0 shares a passage with train's t3.
    """
    texts = {f"p{n}": " ".join(f"w{n}x{m}" for m in range(3 + n % 10)) for n in range(400)}
    relevant = {f"t{n}": [f"p{n}"] for n in range(10)} | {f"d{n}": [f"p{20 + n}"] for n in range(10)}
    relevant |= {"t0": ["p0", "p50"], "t1": ["p50"], "t2": [], "d0": ["p3"]}
    return write_collection(path, texts, relevant, {"train": [f"t{n}" for n in range(10)], "dev": [f"d{n}" for n in range(10)]})
