"""The ranker against the plain composition of its parts."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from service.ranking.preparation import SLICE_CHARS, SLICES_IN_HAND
from tests.service.faults import PATIENCE

QUERY = "which river flooded the old bridge"
DOCUMENTS = [
    {"text": f"Number {n}. " + "The river flooded the stone bridge. " * (n % 9) + "A city. " * n, "title": "T" * (n % 2)}
    for n in range(30)
]


def test_a_large_request_leaves_a_thread_to_prepare_others(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of millions of characters is a slice of its own and takes seconds; as many are in hand as ever are."""
    begun, go_on, prepare = threading.Semaphore(0), threading.Event(), Pipeline.prepare_documents

    def slowly(self: Pipeline, texts: Sequence[str], *rest: Any) -> list[PreparedDocument]:
        if len(texts[0]) > SLICE_CHARS:
            begun.release()
            assert go_on.wait(PATIENCE)
        return prepare(self, texts, *rest)

    monkeypatch.setattr(Pipeline, "prepare_documents", slowly)
    large = {"query": QUERY, "documents": [f"{n} " + "river " * (SLICE_CHARS // 5) for n in range(SLICES_IN_HAND)]}
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.post, "/rerank", json=large)
        assert all(begun.acquire(timeout=PATIENCE) for _ in range(SLICES_IN_HAND))
        quick = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS[:2]})
        assert (quick.status_code, slow.done()) == (200, False)
        go_on.set()
        assert slow.result(PATIENCE).status_code == 200
