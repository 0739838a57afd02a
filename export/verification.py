"""What an exported graph must pass: fp32 parity with PyTorch on real packed inputs, and its ranking at the served precision."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from export import ExportError
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime.batching import score_all
from keyblock.runtime.session import Session
from training.collection import Collection
from training.evaluation import sample
from training.measures import DEFAULT_MEASURES, means, per_query
from training.model import CrossEncoder
from training.ranking import LocalRanker
from training.runs import Run
from training.sampling import Preparation
from training.scoring import score

PARITY = 1e-3  # largest difference of a logit, fp32 graph against fp32 PyTorch
RANKING_LOSS = 0.002  # of nDCG@10 on dev, served precision against fp32
PARITY_PAIRS = 128  # a budget


@dataclass
class Dev:
    """Dev queries of a collection with their candidates, packed by the pipeline that is exported."""

    preparation: Preparation
    candidates: Run

    @classmethod
    def build(cls, collection: Collection, pipeline: Pipeline, queries: int, depth: int) -> "Dev":
        """A fixed sample of the dev queries that have candidates, and the first `depth` of these."""
        run = collection.run("dev")
        chosen = sample(sorted(run), queries)
        return cls(Preparation(collection, pipeline), {q: dict(list(run[q].items())[:depth]) for q in chosen})

    def packed(self, budget: int, count: int) -> list[Packed]:
        """`count` pairs at most, spread over the queries."""
        pairs = [(q, d) for q, documents in self.candidates.items() for d in documents]
        step = max(1, len(pairs) // count)
        return [self.preparation.pack(q, d, budget) for q, d in pairs[::step][:count]]


@dataclass
class Scorer:
    """Scores through a session and keeps the logits of each call, which a ranker makes once a query."""

    session: Session
    pad_id: int
    logits: list[NDArray[np.float32]] = field(default_factory=list)

    def __call__(self, packed: Sequence[Packed]) -> NDArray[np.float32]:
        """Logits of shape (n_sequences,)."""
        self.logits.append(score_all(self.session, packed, self.pad_id))
        return self.logits[-1]


def check_parity(model: CrossEncoder, session: Session, dev: Dev) -> dict[str, float]:
    """The largest and mean difference of a logit between the fp32 graph and PyTorch, over the pipeline's budgets.

    Raises ExportError beyond PARITY.
    """
    packing, pad_id = dev.preparation.pipeline.config.packing, dev.preparation.pipeline.tokenizer.pad_id
    differences = []
    for budget in sorted({*packing.budget_range, packing.budget}):
        packed = dev.packed(budget, PARITY_PAIRS)
        differences.append(np.abs(score_all(session, packed, pad_id) - score(model, packed, pad_id, bf16=False)))
    every = np.concatenate(differences)
    if not every.max() <= PARITY:
        raise ExportError(
            f"the fp32 graph's logits differ from PyTorch's by up to {every.max():.2g} on {dev.preparation.collection.name} "
            f"({PARITY:g} is allowed); the export is wrong: use the locked versions of torch, transformers and onnxruntime"
        )
    return {"max": float(every.max()), "mean": float(every.mean()), "pairs": len(every)}


def compare(reference: Session, served: Session, dev: Dev) -> dict[str, Any]:
    """How far the served session moves logits and dev measures away from the fp32 reference, at the default budget."""
    before, before_logits = _rank(reference, dev, "fp32")
    after, after_logits = _rank(served, dev, f"{served.choice.provider} {served.choice.precision}")
    collection, queries = dev.preparation.collection, list(dev.candidates)
    measures = [means(per_query(collection.qrels, run, queries, DEFAULT_MEASURES)) for run in (before, after)]
    return {
        "queries": len(queries),
        "logits": logit_differences(before_logits, after_logits),
        "top1_kept": float(np.mean([next(iter(before[q])) == next(iter(after[q])) for q in queries])),
        "fp32": measures[0],
        "served": measures[1],
    }


def _rank(session: Session, dev: Dev, name: str) -> tuple[Run, list[NDArray[np.float32]]]:
    scorer = Scorer(session, dev.preparation.pipeline.tokenizer.pad_id)
    ranker = LocalRanker(name, dev.preparation, scorer)
    progress = tqdm(dev.candidates.items(), desc=f"{dev.preparation.collection.name}, {name}", disable=None)
    return {query: ranker.rerank(query, list(documents)).scores for query, documents in progress}, scorer.logits


def logit_differences(before: Sequence[NDArray[np.float32]], after: Sequence[NDArray[np.float32]]) -> dict[str, float]:
    """Mean, 99th percentile and maximum of the absolute differences; the arrays' shapes agree pair by pair."""
    moved = np.abs(np.concatenate(before) - np.concatenate(after))
    return {"mean": float(moved.mean()), "p99": float(np.quantile(moved, 0.99)), "max": float(moved.max()), "pairs": len(moved)}


def check_ranking(compared: dict[str, dict[str, Any]]) -> float:
    """What nDCG@10 loses at the served precision, as the mean over the collections; negative for a gain.

    Raises ExportError beyond RANKING_LOSS.
    """
    losses = {name: of["fp32"]["nDCG@10"] - of["served"]["nDCG@10"] for name, of in compared.items()}
    lost = float(np.mean(list(losses.values())))
    if lost > RANKING_LOSS:
        each = ", ".join(f"{name} {loss:+.4f}" for name, loss in losses.items())
        raise ExportError(
            f"nDCG@10 on dev loses {lost:.4f} at the served precision ({each}; {RANKING_LOSS} is allowed); measure more --queries, "
            "or export with --precision fp32"
        )
    return lost
