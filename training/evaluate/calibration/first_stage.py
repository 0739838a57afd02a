"""Fuses a system's run with the first stage's, with weights that are learned on held-out queries."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ir_measures import AP, Measure, nDCG

from keyblock.fusion import FIRST_STAGE_FUSIONS, FirstStage, FirstStageFusion, Linear
from training.data.files import ranked
from training.data.types import Run
from training.evaluate.measures import Grades, means, per_query

WEIGHTS = [step / 20 for step in range(21)]  # weights of the first stage that are tried


class HeldOut(NamedTuple):
    """The queries of a collection that parameters are learned on.

    Attributes:
        qrels: the judgements.
        first: the first stage's run.
        model: the model's run over the same candidates.
    """

    qrels: Grades
    first: Run
    model: Run


def fuse_runs(fusion: FirstStageFusion, first: Run, model: Run) -> Run:
    """The model's run in the order of the fused scores, as the service orders it; ties keep the model's order.

    Documents without a finite model score, which have no text, stay last. Raises ValueError for a document that the first stage
    lacks.
    """
    return {query: _fused(fusion, query, first.get(query, {}), scores) for query, scores in model.items()}


def _fused(fusion: FirstStageFusion, query: str, first: Mapping[str, float], model: Mapping[str, float]) -> dict[str, float]:
    if missing := sorted(model.keys() - first.keys()):
        raise ValueError(f"fusion: the first stage has no document {missing[0]} for query {query}; give the --candidates it ranked")
    names = list(first)
    evidence = FirstStage(np.asarray([first[name] for name in names])).evidence(fusion, len(names))
    by_name = dict(zip(names, evidence.tolist(), strict=True))
    scored = [name for name, score in model.items() if np.isfinite(score)]
    fused = fusion.fuse(np.asarray([model[name] for name in scored]), np.asarray([by_name[name] for name in scored]))
    best = ranked(dict(zip(scored, fused.tolist(), strict=True)))
    return best | {name: score for name, score in model.items() if name not in best}


def learn(name: str, held_out: Sequence[HeldOut]) -> FirstStageFusion:
    """Learn the parameters of the fusion of this name on held-out queries; every collection counts the same.

    Raises ValueError for an unknown name.
    """
    learner = LEARNERS.get(name, lambda _: {})
    return FIRST_STAGE_FUSIONS.create({"name": name, **learner(held_out)})


def average_precisions(held_out: Sequence[HeldOut]) -> dict[str, float]:
    """The mean average precision of the first stage and of the model."""
    runs = {"first_stage_map": [one.first for one in held_out], "model_map": [one.model for one in held_out]}
    return {
        name: float(np.mean([_mean(AP, one, run) for one, run in zip(held_out, of_system, strict=True)]))
        for name, of_system in runs.items()
    }


def best_weight(held_out: Sequence[HeldOut]) -> dict[str, float]:
    """The weight of WEIGHTS with the best nDCG@10; among equals the smallest, which is nearest to the model alone."""
    values = [np.mean([_mean(nDCG @ 10, one, _linear(weight, one)) for one in held_out]) for weight in WEIGHTS]
    return {"weight": WEIGHTS[int(np.argmax(values))]}


def _linear(weight: float, held_out: HeldOut) -> Run:
    return fuse_runs(Linear(weight=weight), held_out.first, held_out.model)


def _mean(measure: Measure, held_out: HeldOut, run: Run) -> float:
    return means(per_query(held_out.qrels, run, held_out.model, [measure]))[str(measure)]


Learner = Callable[[Sequence[HeldOut]], dict[str, float]]
LEARNERS: Mapping[str, Learner] = {"mapfuse": average_precisions, "linear": best_weight}  # other fusions have nothing to learn
