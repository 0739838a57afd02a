"""Stored documents: the wire's fields under the wire's names."""

from datetime import UTC, datetime
from typing import Any

from keyblock.client.results import read_ranking, read_stored
from keyblock.results import Block, Result


def test_when_a_document_is_forgotten() -> None:
    stored = read_stored({"id": "a", "text": "t", "blocks": 1, "tokens": 2, "expires": 1.5})
    assert stored.expires == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert "'t'" not in repr(stored)


def test_an_answer_by_hand() -> None:
    """What the answer brings back of a document goes before what was sent; a block of a text that nobody has is without one."""
    sent = [{"text": "a river"}, {"id": "b", "title": "sent"}, {"text": "sent", "title": "sent"}]
    block = {"start": 2, "end": 7, "score": 0.5}
    answer: Any = {
        "model": "m",
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
        "meta": {"degraded": False, "warnings": [], "timings_ms": {}},
        "results": [
            {"index": 2, "relevance_score": 0.75, "document": {"text": "a stone"}, "blocks": [block]},
            {"index": 0, "relevance_score": 0.5, "blocks": [block]},
            {"index": 1, "relevance_score": 0.25, "id": "b", "blocks": [block], "scored_by": "order", "fused_score": 1.5},
        ],
    }
    assert list(read_ranking(answer, sent, "id")) == [
        Result(2, 0.75, None, None, "a stone", (Block(2, 7, 0.5, "stone"),)),
        Result(0, 0.5, None, None, "a river", (Block(2, 7, 0.5, "river"),)),
        Result(1, 0.25, "b", "sent", None, (Block(2, 7, 0.5, None),), "order", fused_score=1.5),
    ]
