"""What a bundle says of documents, beside what its run said; and batches for graphs."""

from pathlib import Path

import numpy as np
import pytest

from export.exporter import SAMPLE
from keyblock import Ranker
from training.data.collection import Collection
from training.evaluate.ranking import run_ranker

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Ids, types and mask, shape (rows, length) each."""


def batch(rows: int, length: int, *, padded: bool = True, vocabulary: int = 30522) -> Batch:
    """Rows of drawn tokens, of drawn lengths or all of the whole length."""
    random = np.random.default_rng(length)
    lengths = random.integers(1, length + 1, rows) if padded else np.full(rows, length)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return random.integers(5, vocabulary, (rows, length)) * mask, random.integers(0, 2, (rows, length)), mask


def assert_ranks_alike(bundle: Path, run: Path) -> None:
    """The bundle, through the library, scores the sample's documents as the run does, and tells them apart."""
    sample = Collection(SAMPLE)
    names, trained = list(sample.documents), run_ranker(run, sample, bf16=False)
    with Ranker.open(bundle, provider="cpu", precision="fp32", threads=1) as ranker:
        for query in list(sample.queries)[:2]:
            expected = trained.rerank(query, names).scores
            texts = [{"title": sample.documents[name].title, "text": sample.documents[name].text} for name in names]
            for result in ranker.rank(sample.queries[query], texts, raw_scores=True):
                assert result.relevance_score == pytest.approx(expected[names[result.index]], abs=1e-3)
            assert len({round(score, 2) for score in expected.values()}) > 2
