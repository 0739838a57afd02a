from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from benchmarks.deadlines import Under, ask, draw, row


def answering(results: list[dict[str, Any]], degraded: bool) -> httpx.Client:
    def handle(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"results": results, "meta": {"degraded": degraded}})

    return httpx.Client(base_url="http://x", transport=httpx.MockTransport(handle))


def test_an_answer_is_noted_by_its_order() -> None:
    """Documents that were not read have equal scores, and keep the order given."""
    under = Under()
    results = [{"id": "b"}, {"id": "a", "scored_by": "selector"}, {"id": "c", "scored_by": "order"}, {"id": "d"}]
    with answering(results, degraded=True) as client:
        ask(client, {"query": "q", "documents": ["x"]}, "q1", 10_000, under)
    assert list(under.run["q1"]) == ["b", "a", "c", "d"]
    assert (under.degraded, under.by_model) == ([True], [0.5])
    assert -10_000 < under.late[0] < 0
    collection: Any = SimpleNamespace(name="toy", qrels={"q1": {"a": 1}})
    assert row(collection, 50, under)[:6] == ["toy", "50", "0.5000", "0.6309", "100%", "50%"]
    assert row(collection, 0, under)[1::5] == ["none", ""]


def test_a_refusal_ends_the_measurement() -> None:
    with (
        httpx.Client(base_url="http://x", transport=httpx.MockTransport(lambda _: httpx.Response(429))) as client,
        pytest.raises(httpx.HTTPStatusError),
    ):
        ask(client, {}, "q1", 0, Under())


def test_the_picture(tmp_path: Path) -> None:
    draw({"a": {50: 0.5, 200: 0.7, 0: 0.8}, "b": {50: 0.1}}).savefig(tmp_path / "deadlines.png")
    assert (tmp_path / "deadlines.png").stat().st_size > 1000
