"""A system's run fused with the first stage's, and how much each of them counts, learned on held-out queries."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ir_measures import AP, Measure, nDCG

from keyblock.first_stage import FIRST_STAGE_FUSIONS, FirstStage, FirstStageFusion, Linear
from training.collections.runs import ranked
from training.collections.types import Run
from training.evaluation.measures import Grades, means, per_query

WEIGHTS = [step / 20 for step in range(21)]  # of the first stage, that are tried


class HeldOut(NamedTuple):
    """The queries of a collection that parameters are learned on.

    Attributes:
        qrels: their judgements.
        first: what the first stage ranked.
        model: what the model ranked of the same candidates.
    """

    qrels: Grades
    first: Run
    model: Run


def fuse_runs(fusion: FirstStageFusion, first: Run, model: Run) -> Run:
    """The model's run in the order of the fused scores, as the service orders it: equals as the model has them.

    Documents without a finite score of the model, which have no text, stay last. Raises ValueError for a document that the first
    stage does not have.
    """
    return {query: _fused(fusion, query, first.get(query, {}), scores) for query, scores in model.items()}


def _fused(fusion: FirstStageFusion, query: str, first: Mapping[str, float], model: Mapping[str, float]) -> dict[str, float]:
    if missing := sorted(model.keys() - first.keys()):
        raise ValueError(f"fusion: the first stage has no document {missing[0]} for query {query}; give the --candidates it ranked")
    names = list(first)
    evidence = FirstStage(np.asarray([first[name] for name in names])).evidence(fusion, len(names))
    of_first = dict(zip(names, evidence.tolist(), strict=True))
    scored = [name for name, score in model.items() if np.isfinite(score)]
    fused = fusion.fuse(np.asarray([model[name] for name in scored]), np.asarray([of_first[name] for name in scored]))
    best = ranked(dict(zip(scored, fused.tolist(), strict=True)))
    return best | {name: score for name, score in model.items() if name not in best}


def learn(name: str, held_out: Sequence[HeldOut]) -> FirstStageFusion:
    """The fusion of this name with the parameters that the held-out queries teach; each collection counts the same.

    Raises ValueError for an unknown name.
    """
    teach = LEARNERS.get(name, lambda _: {})
    return FIRST_STAGE_FUSIONS.create({"name": name, **teach(held_out)})


def average_precisions(held_out: Sequence[HeldOut]) -> dict[str, float]:
    """The mean average precision of both systems."""
    runs = {"first_stage_map": [one.first for one in held_out], "model_map": [one.model for one in held_out]}
    return {name: float(np.mean([_mean(AP, one, run) for one, run in zip(held_out, of, strict=True)])) for name, of in runs.items()}


def best_weight(held_out: Sequence[HeldOut]) -> dict[str, float]:
    """Of WEIGHTS the one of the best nDCG@10; of several the smallest, which is the nearest to the model alone."""
    values = [np.mean([_mean(nDCG @ 10, one, _linear(weight, one)) for one in held_out]) for weight in WEIGHTS]
    return {"weight": WEIGHTS[int(np.argmax(values))]}


def _linear(weight: float, of: HeldOut) -> Run:
    return fuse_runs(Linear(weight=weight), of.first, of.model)


def _mean(measure: Measure, of: HeldOut, run: Run) -> float:
    return means(per_query(of.qrels, run, of.model, [measure]))[str(measure)]


Learner = Callable[[Sequence[HeldOut]], dict[str, float]]
LEARNERS: Mapping[str, Learner] = {"mapfuse": average_precisions, "linear": best_weight}  # others have nothing to learn
