"""Which lists are asked for, and when scores are the same."""

import gzip
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks.bulk import beside
from benchmarks.bulk.beside import COMMANDS, SERVICE, DifferentScoresError, Ran, largest_difference, measure, pairs_of, read_lists


def test_the_first_lists_of_the_run_bring_their_texts(tmp_path: Path) -> None:
    def write(name: str, lines: list[str]) -> None:
        (tmp_path / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))

    write("corpus.jsonl.gz", [json.dumps({"_id": one, "text": f"text of {one}"}) for one in "abc"])
    write("queries.jsonl.gz", [json.dumps({"_id": one, "text": f"{one}?"}) for one in ("q1", "q2", "q3")])
    write("run.dev.bm25.trec.gz", ["q2 Q0 b 1 9 x", "q2 Q0 a 2 8 x", "q1 Q0 c 1 7 x", "q3 Q0 a 1 6 x"])
    lists = read_lists(tmp_path, 2)
    assert [(one["qid"], one["query"], [document["docid"] for document in one["documents"]]) for one in lists] == [
        ("q2", "q2?", ["b", "a"]),
        ("q1", "q1?", ["c"]),
    ]
    assert lists[0]["documents"][0]["text"] == "text of b"
    assert pairs_of(lists) == 3


def test_the_largest_difference_is_reported_and_too_large_a_difference_is_an_error() -> None:
    expected = {("q", "a"): 0.5, ("q", "b"): 0.25}
    assert largest_difference(expected, {("q", "b"): 0.25, ("q", "a"): 0.50005}) == pytest.approx(5e-5)
    with pytest.raises(DifferentScoresError, match=r"differs by 0\.25 from the service's, more than 0\.0001"):
        largest_difference(expected, {("q", "a"): 0.5, ("q", "b"): 0.5})
    with pytest.raises(DifferentScoresError, match="scored 2 pairs, and keyblock-bulk 1"):
        largest_difference(expected, {("q", "a"): 0.5})


def test_the_start_is_taken_off_and_the_median_round_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Six pairs take 8, 6 and 5 s after a start of 2 s: 1, 1.5 and 2 a second."""
    scores = {("q", str(n)): 0.5 for n in range(6)}
    walls = iter([*[2.0] * 4, *[8.0] * 4, *[6.0] * 4, *[5.0] * 4, *[2.0] * 4])
    monkeypatch.setattr(beside, "Service", lambda *_: nullcontext())
    monkeypatch.setattr(beside, "ask", lambda *_: Ran(3.0, 2.0, scores, {}))
    monkeypatch.setattr(beside, "rank", lambda *_: Ran(wall := next(walls), wall + 1.0, scores, {"driver": 200.4}))
    measured = measure([{"documents": [{}] * 6}], 3, tmp_path)
    assert measured["rates"][SERVICE] == {"wall": 2.0, "cpu": 3.0}
    assert measured["rates"]["Ray, 2 workers"] == {"wall": 1.5, "cpu": 1.5}
    assert measured["start_seconds"]["1 worker"] == 2.0
    assert measured["resident"]["2 workers"] == {"driver": 200}
    assert measured["differences"] == dict.fromkeys(COMMANDS, 0.0)
