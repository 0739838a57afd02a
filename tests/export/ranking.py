"""What a bundle says of documents, beside what its run said."""

from pathlib import Path

import pytest

from export.exporter import SAMPLE
from keyblock import Ranker
from training.data.collection import Collection
from training.evaluate.ranking import run_ranker


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
