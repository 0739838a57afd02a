"""The curve of escalation on a collection of two documents, by a real model."""

import gzip
import json
from pathlib import Path

from benchmarks.cascade import Remembering
from benchmarks.escalation import DEFAULT, escalating, point
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from training.collections.collection import Collection
from training.evaluation.intrinsic import segmented
from training.examples.preparation import Preparation

QUIET = "The winter garden was quiet that morning, and nobody came. "
ANSWER = "The river flooded the old stone bridge in May."


def write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def test_the_curve_of_one_query(tmp_path: Path) -> None:
    """Its words are in the answer's block, so that nothing is in doubt below 1 but the other document, which has none of them."""
    text = QUIET * 40 + ANSWER + " " + QUIET * 40
    start = text.index(ANSWER)
    write(tmp_path / "corpus.jsonl.gz", [{"_id": "a", "title": "", "text": text}, {"_id": "b", "title": "", "text": QUIET * 80}])
    write(tmp_path / "queries.jsonl.gz", [{"_id": "q", "text": "Which river flooded the bridge?"}])
    write(tmp_path / "spans.jsonl.gz", [{"qid": "q", "docid": "a", "start": start, "end": start + len(ANSWER)}])
    (tmp_path / "qrels.tsv.gz").write_bytes(gzip.compress(b"q\t0\ta\t1\n"))
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "dev.txt").write_text("q\n")
    (tmp_path / "run.dev.bm25.trec.gz").write_bytes(gzip.compress(b"q Q0 a 1 2.0 bm25\nq Q0 b 2 1.0 bm25\n"))
    bundle, collection = load_bundle(DEFAULT), Collection(tmp_path)
    model = Remembering(GraphModel.open(bundle, "cpu", 1))
    preparation = Preparation(collection, bundle.pipeline)
    pairs = segmented(preparation, ["q"])
    never, half = (point(escalating(bundle, below, 2048, None), model, preparation, pairs, 2) for below in (0.0, 0.5))
    assert (never.doubtful, never.tokens, never.gold) == (0.0, 0.0, 1.0)
    assert (half.doubtful, half.gold) == (0.5, 1.0)
    assert 0 < half.tokens <= 2048 / 2
