"""A collection that several measurements are tried on."""

import gzip
import json
from pathlib import Path

import pytest

from training.collections.collection import Collection

QUIET = "The winter garden was quiet that morning, and nobody came. "
ANSWER = "The river flooded the old stone bridge in May."


def write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


@pytest.fixture
def flood(tmp_path: Path) -> Collection:
    """One dev query and two long documents: `a` has the answer's sentence in the middle, `b` none of its words."""
    text = QUIET * 40 + ANSWER + " " + QUIET * 40
    start = text.index(ANSWER)
    path = tmp_path / "flood"
    (path / "splits").mkdir(parents=True)
    write(path / "corpus.jsonl.gz", [{"_id": "a", "title": "", "text": text}, {"_id": "b", "title": "", "text": QUIET * 80}])
    write(path / "queries.jsonl.gz", [{"_id": "q", "text": "Which river flooded the bridge?"}])
    write(path / "spans.jsonl.gz", [{"qid": "q", "docid": "a", "start": start, "end": start + len(ANSWER)}])
    (path / "qrels.tsv.gz").write_bytes(gzip.compress(b"q\t0\ta\t1\n"))
    (path / "splits" / "dev.txt").write_text("q\n")
    (path / "run.dev.bm25.trec.gz").write_bytes(gzip.compress(b"q Q0 a 1 2.0 bm25\nq Q0 b 2 1.0 bm25\n"))
    return Collection(path)
