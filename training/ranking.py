"""Rankers that re-rank a query's candidates: a training run (PyTorch), a bundle (ONNX), or a service over HTTP."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from keyblock.bundle import Bundle
from keyblock.frequencies import DocumentFrequencies
from keyblock.fusion import Fusion
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline, PipelineConfig
from keyblock.runtime.batching import score_all
from keyblock.runtime.session import Session
from keyblock.tokenization import Tokenizer
from training.checkpoints import latest
from training.collection import Collection
from training.model import CrossEncoder
from training.recipe import problems
from training.runs import ranked
from training.sampling import Preparation
from training.scoring import score

Score = Callable[[Sequence[Packed]], NDArray[np.float32]]


class Reranked(NamedTuple):
    """A query's candidates in a new order.

    Attributes:
        scores: by document id, best first.
        blocks: by document id, the offsets of its selected blocks, best first.
    """

    scores: dict[str, float]
    blocks: dict[str, list[tuple[int, int]]]


class Ranker(ABC):
    """Re-ranks candidates of one collection."""

    name: str

    @abstractmethod
    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """Score every candidate. Ties stay in the order given."""


@dataclass
class LocalRanker(Ranker):
    """Scores in this process, through the pipeline."""

    name: str
    preparation: Preparation
    score: Score
    budget: int | None = None

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """See Ranker."""
        pipeline = self.preparation.pipeline
        query = self.preparation.query(query_id)
        documents = [self.preparation.document(d) for d in candidates]
        selections = [pipeline.select(query, document, self.budget) for document in documents]
        logits = self.score([s.packed for s in selections])
        fused = pipeline.config.fusion.fuse(logits, np.stack([s.evidence for s in selections]))
        # a document without a block has nothing to score: last, as the service ranks it
        scores = [float(f) if document.n_blocks else -np.inf for f, document in zip(fused, documents, strict=True)]
        blocks = {
            name: [(int(document.starts[b]), int(document.ends[b])) for b in s.packed.taken]
            for name, document, s in zip(candidates, documents, selections, strict=True)
        }
        return Reranked(ranked(dict(zip(candidates, scores, strict=True))), blocks)


@dataclass
class HttpRanker(Ranker):
    """Asks a running service, with whole documents, as a search back end would."""

    name: str
    collection: Collection
    client: httpx.Client

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """See Ranker. Raises ValueError when the service is not there, refuses, fails, or answers something else."""
        documents = [self.collection.document(d) for d in candidates]
        body: dict[str, Any] = {
            "query": self.collection.query(query_id),
            "documents": [{"id": d.doc_id, "title": d.title, "text": d.text} for d in documents],
            "return_blocks": True,
            "raw_scores": True,
        }
        try:
            answer = self.client.post("/rerank", json=body)
        except httpx.HTTPError as error:
            raise ValueError(f"{self.client.base_url}: no answer from there ({error})") from None
        if answer.is_error:
            raise ValueError(f"{answer.url}: answers {answer.status_code} {answer.text[:300]}")
        try:
            results = answer.json()["results"]
            scores = {r["id"]: float(r["relevance_score"]) for r in results}
            return Reranked(scores, {r["id"]: [(b["start"], b["end"]) for b in r["blocks"]] for r in results})
        except (KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}; it begins {answer.text[:80]!r}"
            raise ValueError(f"{answer.url} does not answer as POST /rerank does ({what})") from None


def load_run_pipeline(run: Path, selector: str | None = None) -> Pipeline:
    """The pipeline that a run directory describes; with another selector, and the model's logit alone, when one is named.

    The fusion's weights were learned on the scores of the run's own selector and mean nothing for another's.
    Raises ValueError or OSError when the directory holds no run, or a damaged one.
    """
    path = run / "pipeline.json"
    try:
        config = PipelineConfig.model_validate_json(path.read_text(encoding="utf-8"))
        if selector:
            config = PipelineConfig.model_validate(config.model_dump() | {"selector": {"name": selector}, "fusion": Fusion()})
    except ValidationError as error:
        raise ValueError(f"{path}: {problems(error)}") from None
    return Pipeline(config, Tokenizer(run / "tokenizer.json"), DocumentFrequencies.read(run / "frequencies.tsv"))


def run_ranker(
    run: Path, collection: Collection, budget: int | None = None, bf16: bool = True, selector: str | None = None
) -> LocalRanker:
    """A training run's last checkpoint; with another selector, the same model is fed other blocks.

    Raises ValueError or OSError when the directory holds no run, a damaged one, or one of fewer positions than `budget`.
    """
    pipeline = load_run_pipeline(run, selector)
    model = CrossEncoder.load(latest(run))
    if budget and budget > model.max_length:
        raise ValueError(f"{run}: a budget of {budget} tokens exceeds the {model.max_length} that its model reads")
    pad_id, document_type = pipeline.tokenizer.pad_id, pipeline.tokenizer.template.document_type

    def logits(packed: Sequence[Packed]) -> NDArray[np.float32]:
        return score(model, packed, pad_id, bf16, document_type=document_type)

    name = f"{run.name} fed {selector} blocks" if selector else run.name
    return LocalRanker(name, Preparation(collection, pipeline), logits, budget)


def bundle_ranker(bundle: Bundle, session: Session, collection: Collection, budget: int | None = None) -> LocalRanker:
    """A bundle through ONNX Runtime, as the service runs it."""
    preparation = Preparation(collection, bundle.pipeline)
    pad_id, document_type = bundle.tokenizer.pad_id, bundle.tokenizer.template.document_type
    return LocalRanker(bundle.manifest.name, preparation, lambda packed: score_all(session, packed, pad_id, document_type), budget)
