"""keyblock-evaluate --fuse: measures a run again, fused with its first stage, with parameters learned on dev."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ir_measures import Measure

from keyblock.first_stage import FIRST_STAGE_FUSIONS, FirstStageFusion
from training.collections.collection import Collection
from training.collections.first_stage import first_stage_run
from training.collections.types import Run
from training.evaluation.evaluate import Evaluation, evaluate, evaluate_run, sample
from training.evaluation.first_stage_fusion import LEARNERS, HeldOut, fuse_runs, learn
from training.evaluation.ranking import Ranker
from training.evaluation.seeds import seed_runs

HELD_OUT = "dev"  # the split on which parameters are learned


class Fused(NamedTuple):
    """A fusion and its evaluation.

    Attributes:
        label: the fusion's name in the options, as one word.
        fusion: the fusion with its parameters.
        evaluation: the measures of the fused run.
        learned: whether the parameters were learned.
    """

    label: str
    fusion: FirstStageFusion
    evaluation: Evaluation
    learned: bool


def check_fusions(options: argparse.Namespace) -> None:
    """Raise ValueError for unknown or repeated fusions, and for learned ones of a system that cannot rank dev."""
    for given in options.fuse:
        if not isinstance(given, str | dict):
            raise ValueError(f"--fuse takes names, or '{{name: linear, weight: 0.3}}', and not {given!r}")
        FIRST_STAGE_FUSIONS.create(given)
    labels = [_label(given) for given in options.fuse]
    if repeated := [label for label in labels if labels.count(label) > 1]:
        raise ValueError(f"--fuse has two that are called {repeated[0]}: name each once, and tell them apart by their parameters")
    learned = [given for given in options.fuse if _is_learned(given)]
    if learned and options.ranked:
        raise ValueError(f"--fuse {learned[0]} learns on {HELD_OUT}, which a --ranked run is not of: give it with parameters")
    if options.fuse and sum(len(seed_runs(path)) for path in options.run or ()) > 1:
        raise ValueError("--fuse is of one run: each seed has parameters of its own")


def fuse(
    options: argparse.Namespace,
    collection: Collection,
    evaluation: Evaluation,
    candidates: Run,
    measures: Sequence[Measure],
    ranker: Callable[[], Ranker],
) -> list[Fused]:
    """The evaluation's run fused with the candidates, once for each fusion that the options name.

    Args:
        options: the command's options.
        collection: the collection that is measured on.
        evaluation: the evaluation of the system without fusion.
        candidates: the first stage's run.
        measures: the measures of the table.
        ranker: opens the system again to rank dev, if another split is measured; as many dev queries are drawn as are measured.
    """
    learns = any(map(_is_learned, options.fuse))
    if learns and options.split == HELD_OUT:
        held_out = [HeldOut(collection.qrels, candidates, evaluation.run)]
    else:
        held_out = [_held_out(options, collection, ranker())] if learns else []
    found = []
    for given in options.fuse:
        fusion = learn(given, held_out) if isinstance(given, str) else FIRST_STAGE_FUSIONS.create(given)
        label = _label(given)
        run, queries = fuse_runs(fusion, candidates, evaluation.run), list(next(iter(evaluation.values.values())))
        measured = evaluate_run(f"{evaluation.name} + {label}", run, collection, queries, measures)
        found.append(Fused(label, fusion, measured, _is_learned(given)))
    return found


def figures_of(fused: Sequence[Fused], split: str) -> dict[str, Any]:
    """The fusions as JSON: their parameters, and the split on which they were learned; empty without a fusion."""
    if not fused:
        return {}
    learned = [one.label for one in fused if one.learned]
    where = f"{HELD_OUT}, the queries measured here" if split == HELD_OUT else HELD_OUT
    described = {"fusions": {one.label: one.fusion.describe() for one in fused}}
    return described | ({"fusions_learned_on": f"{where}: {', '.join(learned)}"} if learned else {})


def _label(given: str | dict[str, Any]) -> str:
    return given if isinstance(given, str) else "-".join(map(str, given.values()))


def _is_learned(given: object) -> bool:
    return isinstance(given, str) and given in LEARNERS


def _held_out(options: argparse.Namespace, collection: Collection, ranker: Ranker) -> HeldOut:
    """The runs of the system and of the first stage on dev. Raises CollectionError if there is no such split."""
    found = first_stage_run(collection, HELD_OUT, options.depth)
    first = {
        query: dict(list(found[query].items())[: options.depth])
        for query in sample(collection.split(HELD_OUT), options.queries)
        if query in found
    }
    ranker.name += f" on {HELD_OUT}, to learn a fusion"
    return HeldOut(collection.qrels, first, evaluate(ranker, collection, list(first), first, workers=options.workers).run)
