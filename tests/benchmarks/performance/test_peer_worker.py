"""The peers' side of the protocol, with a score of our own."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.performance import peer_worker


def test_lines_are_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[list[list[str]]] = []

    def tokenizer(pairs: list[list[str]], **_: object) -> None:
        seen.append(pairs)

    def score(_: str, documents: Sequence[str]) -> list[float]:
        return [float(len(document)) for document in documents]

    monkeypatch.setitem(peer_worker.KINDS, "own", lambda *_: (score, tokenizer))
    asked = {"query": "q", "documents": ["a", "bb"] * 20}
    lines = "\n".join(json.dumps(line) for line in (asked, asked | {"tokenize": True}))
    answers = io.StringIO()
    peer_worker.serve(io.StringIO(lines), answers, "own", tmp_path, 1)
    ready, scored, tokenized = map(json.loads, answers.getvalue().splitlines())
    assert ready == {"ready": True}
    assert scored["scores"] == [1.0, 2.0] * 20
    assert scored["seconds"] >= 0
    assert tokenized["scores"] == []
    assert [len(pairs) for pairs in seen] == [32, 8]


def test_without_a_tokenizer_there_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peer_worker.answer(lambda *_: [], None, {"query": "q", "documents": [], "tokenize": True})["seconds"] is None
