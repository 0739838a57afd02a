"""The ranker against the plain composition of its parts."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from keyblock.bundle import BundleError, load_bundle
from keyblock.fusion import sigmoid
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.runtime.batching import score_all
from keyblock.runtime.providers import Precision, Provider, ProviderError
from keyblock.runtime.session import Session
from service.ranking.preparation import SLICE_CHARS, SLICES_IN_HAND
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.faults import PATIENCE

QUERY = "which river flooded the old bridge"
DOCUMENTS = [
    {"text": f"Number {n}. " + "The river flooded the stone bridge. " * (n % 9) + "A city. " * n, "title": "T" * (n % 2)}
    for n in range(30)
]


@pytest.mark.parametrize("budget", [64, 128, 200])
def test_scores_are_those_of_pipeline_session_and_fusion(
    client: TestClient, ranker: Ranker, session: Session, bundle_path: Path, budget: int
) -> None:
    pipeline = load_bundle(bundle_path).pipeline
    query = pipeline.prepare_query(QUERY)
    selections = [pipeline.select(query, pipeline.prepare_document(d["text"], d["title"]), budget) for d in DOCUMENTS]
    logits = score_all(session, [s.packed for s in selections], pipeline.tokenizer.pad_id)
    expected = sigmoid(pipeline.config.fusion.fuse(logits, np.asarray([s.evidence for s in selections])))
    answer = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, "max_tokens_per_doc": budget}).json()
    assert {r["index"]: r["relevance_score"] for r in answer["results"]} == pytest.approx(dict(enumerate(expected)), abs=1e-5)
    assert answer["usage"]["prompt_tokens"] == sum(len(s.packed.ids) for s in selections)


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


def test_load_refuses_in_one_line(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        Ranker.load(settings.model_copy(update={"bundle": (tmp_path / "none",)}))
    with pytest.raises(ProviderError, match="cuda"):
        Ranker.load(settings.model_copy(update={"provider": Provider.CUDA}))
    with pytest.raises(ProviderError, match="bf16"):
        Ranker.load(settings.model_copy(update={"precision": Precision.BF16}))
