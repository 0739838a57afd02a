"""The ranker against the plain composition of its parts."""

from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from keyblock.bundle import BundleError, load_bundle
from keyblock.fusion import sigmoid
from keyblock.runtime.batching import score_all
from keyblock.runtime.providers import Precision, Provider, ProviderError
from keyblock.runtime.session import Session
from service.ranker import Ranker
from service.settings import Settings

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


def test_load_refuses_in_one_line(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        Ranker.load(settings.model_copy(update={"bundle": tmp_path / "none"}))
    with pytest.raises(ProviderError, match="cuda"):
        Ranker.load(settings.model_copy(update={"provider": Provider.CUDA}))
    with pytest.raises(ProviderError, match="bf16"):
        Ranker.load(settings.model_copy(update={"precision": Precision.BF16}))
