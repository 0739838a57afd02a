"""The checks of exported graphs: fp32 parity with PyTorch on real packed inputs, and their ranking at the served precision."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from export import ExportError
from export.certificate import beyond
from keyblock.aggregation import aggregate
from keyblock.packing import Packed, weights_of
from keyblock.pipeline import Pipeline, Selection
from keyblock.ranking.request import ORDER_ALONE
from keyblock.runtime.model import GraphModel
from keyblock.scoring import Marking, Model, select_documents
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import Run
from training.evaluate.evaluate import sampled_run
from training.evaluate.measures import DEFAULT_MEASURES, means, per_query
from training.evaluate.ranking import LocalRanker

PARITY = 1e-3  # the largest allowed difference of a logit between fp32 graph and fp32 PyTorch
RANKING_LOSS = 0.002  # the largest allowed loss of nDCG@10 on dev at the served precision, against fp32
PARITY_SEQUENCES = 128  # sequences for each budget


@dataclass
class Dev:
    """Dev queries of a collection with their candidates, for the pipeline that is exported."""

    preparation: Preparation
    candidates: Run

    @classmethod
    def build(cls, collection: Collection, pipeline: Pipeline, queries: int, depth: int) -> "Dev":
        """A fixed sample of the dev queries that have candidates, each with its first `depth` candidates."""
        return cls(Preparation(collection, pipeline), sampled_run(collection, "dev", queries, depth))

    def selections(self, model: Model, budget: int, sequences: int) -> tuple[list[Selection], list[Packed]]:
        """Select blocks of pairs in a fixed random order, until there are at least `sequences` sequences.

        Returns:
            The selection of each pair, and the sequences that the model scored for a learned selector.
        """
        pairs = [(q, d) for q, documents in self.candidates.items() for d in documents]
        selections: list[Selection] = []
        choosing: list[Packed] = []

        def choose(given: Sequence[Packed]) -> NDArray[np.float32]:
            choosing.extend(given)
            return model.choose(given)

        for query_id, doc_id in random.Random(0).sample(pairs, len(pairs)):
            query, document = self.preparation.query(query_id), self.preparation.document(doc_id)
            selections += select_documents(self.preparation.pipeline, query, [document], choose, budget)
            if len(choosing) + sum(len(selection.sequences) for selection in selections) >= sequences:
                break
        return selections, choosing


def check_parity(reference: Model, graphs: Model, dev: Dev) -> dict[str, float]:
    """The largest and mean difference of a logit between the fp32 graphs and PyTorch, over the pipeline's budgets.

    The check compares the logits of documents, of single sequences, and those for a learned selector; both sides score the blocks
    that PyTorch chose. `pairs` counts the compared logits.

    Raises ExportError beyond PARITY.
    """
    packing = dev.preparation.pipeline.config.packing
    expected: list[NDArray[np.float32]] = []
    found: list[NDArray[np.float32]] = []
    marks: list[float] = []
    for budget in sorted({*packing.budget_range, packing.budget}):
        selections, choosing = dev.selections(reference, budget, PARITY_SEQUENCES)
        for model, logits in ((reference, expected), (graphs, found)):
            logits.append(_every_logit(dev.preparation.pipeline, model, selections, choosing))
        if (difference := _largest_mark_difference(reference, graphs, selections)) is not None:
            marks.append(difference)
    every = np.abs(np.concatenate(expected) - np.concatenate(found))
    if not max(every.max(initial=0.0), *marks, 0.0) <= PARITY:
        raise ExportError(
            f"the fp32 graph's logits differ from PyTorch's by up to {beyond(float(every.max()), PARITY)} on "
            f"{dev.preparation.collection.name} ({PARITY:g} is allowed); the export is wrong: "
            "use the locked versions of torch, transformers and onnxruntime"
        )
    of_marks = {"marks max": max(marks)} if marks else {}
    return {"max": float(every.max()), "mean": float(every.mean()), "pairs": len(every), **of_marks}


def _largest_mark_difference(reference: Model, graphs: Model, selections: Sequence[Selection]) -> float | None:
    """The largest difference of a token's mark; None if neither marks tokens. Raises ExportError if only one side does."""
    packed = [packed for selection in selections for packed in selection.sequences]
    sides = [model.mark(packed).marks if isinstance(model, Marking) else None for model in (reference, graphs)]
    if sides[0] is None and sides[1] is None:
        return None
    if sides[0] is None or sides[1] is None:
        raise ExportError("one of the graph and the PyTorch model marks tokens, and the other does not; export again")
    return max(float(np.abs(one - other).max()) for one, other in zip(*sides, strict=True))


def _every_logit(
    pipeline: Pipeline, model: Model, selections: Sequence[Selection], choosing: Sequence[Packed]
) -> NDArray[np.float32]:
    """Logits of the documents that have blocks, of their sequences if those differ, and of the sequences for a selector."""
    packed = [packed for selection in selections for packed in selection.sequences]
    outputs = model.outputs(packed)
    counts = np.asarray([len(selection.sequences) for selection in selections])
    single = outputs if outputs.ndim == 1 else outputs[:, 0]
    documents = aggregate(pipeline.aggregator, outputs, counts, model.combine, weights_of(packed)).logits[counts > 0]
    return np.concatenate([documents, single[:0] if pipeline.aggregator.joint else single, model.choose(choosing)])


def compare(reference: GraphModel, served: GraphModel, dev: Dev) -> dict[str, Any]:
    """How far documents' logits and dev measures of the served graphs differ from the fp32 graphs', at the default budget."""
    before, before_logits = _rank(reference, dev, "fp32")
    after, after_logits = _rank(served, dev, f"{served.session.choice.provider} {served.session.choice.precision}")
    collection, queries = dev.preparation.collection, list(dev.candidates)
    measures = [means(per_query(collection.qrels, run, queries, DEFAULT_MEASURES)) for run in (before, after)]
    return {
        "queries": len(queries),
        "logits": logit_differences(before_logits, after_logits),
        "top1_kept": float(np.mean([next(iter(before[q])) == next(iter(after[q])) for q in queries])),
        "fp32": measures[0],
        "served": measures[1],
    }


def _rank(model: Model, dev: Dev, name: str) -> tuple[Run, list[NDArray[np.float32]]]:
    """The run, and the logits of each query's documents: the model scores every document, since each logit is compared."""
    ranker, run, logits = LocalRanker(name, dev.preparation, model), dict[str, dict[str, float]](), []
    for query, documents in tqdm(dev.candidates.items(), desc=f"{dev.preparation.collection.name}, {name}", disable=None):
        names = list(documents)
        found = ranker.answered(query, names, ORDER_ALONE._replace(top_n=len(names)))
        run[query] = {names[number]: float(found.ranking.scores[number]) for number in found.ranking.order}
        if found.outcome is not None:
            logits.append(found.outcome.scores.logits)
    return run, logits


def logit_differences(before: Sequence[NDArray[np.float32]], after: Sequence[NDArray[np.float32]]) -> dict[str, float]:
    """Mean, 99th percentile and maximum of the absolute differences; the arrays of each pair have the same shape.

    A document without blocks has no logit (-inf) and is left out.
    """
    old, new = np.concatenate(before), np.concatenate(after)
    scored = np.isfinite(old)
    moved = np.abs(old[scored] - new[scored])
    return {"mean": float(moved.mean()), "p99": float(np.quantile(moved, 0.99)), "max": float(moved.max()), "pairs": len(moved)}


def check_ranking(compared: dict[str, dict[str, Any]], where: str) -> float:
    """The loss of nDCG@10 against fp32, as the mean over the collections; negative for a gain.

    Args:
        compared: from `compare`, by collection.
        where: the provider and precision, for the error.

    Raises ExportError beyond RANKING_LOSS.
    """
    losses = {name: of["fp32"]["nDCG@10"] - of["served"]["nDCG@10"] for name, of in compared.items()}
    lost = float(np.mean(list(losses.values())))
    if lost > RANKING_LOSS:
        each = ", ".join(f"{name} {loss:+.4f}" for name, loss in losses.items())
        raise ExportError(
            f"nDCG@10 on dev loses {lost:.4f} on {where} ({each}; {RANKING_LOSS} is allowed); measure more --queries, "
            "or export with --precision fp32 and without that variant"
        )
    return lost
