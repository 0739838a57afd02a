"""Calibration: scores a model on dev, learns fusion, budget and passages from the scores, and measures their quality."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from pydantic import ValidationError

from keyblock.description import PipelineConfig
from keyblock.fusion import FEATURES, Activation, Fusion, SecondLook, SpanScores
from keyblock.packing import PackingConfig
from keyblock.pipeline import Pipeline
from keyblock.prepared import content_digest
from training.data.collection import Collection, distinct_names
from training.data.types import Run
from training.evaluate.calibration.first_stage import HeldOut, fuse_runs, learn
from training.evaluate.calibration.fit import (
    LISTS,
    DevScores,
    at_threshold,
    auroc,
    best_threshold,
    calibration_error,
    calibration_gap,
    fit_fusion,
    quality_table,
    read_scores,
    reliability,
    score_dev,
    threshold_interval,
    top_gap,
    top_scores,
    write_scores,
)
from training.evaluate.calibration.second_look import fit_second_look, look_at_dev, with_look
from training.evaluate.calibration.spans import ReadDocument, fit_spans, read_documents, span_probabilities
from training.evaluate.calibration.systems import Calibrated, with_passages
from training.evaluate.evaluate import sampled_run
from training.evaluate.measures import means, per_query
from training.evaluate.tables import markdown
from training.recipe import problems

SENTENCE_DEPTH = 10  # first candidates of a query whose sentences are judged, beside the relevant ones
ANSWER_FIGURES = ("auroc", "top_error", "recall", "refused")  # by collection
LEAST = 10  # dev queries with a relevant candidate: fewer teach chance, even with the prior


class Setting(NamedTuple):
    """How much of a document is read.

    Attributes:
        budget: tokens of a sequence.
        passages: the number of passages; None for the pipeline's own.
    """

    budget: int
    passages: int | None = None

    @property
    def cost(self) -> int:
        """Tokens that are read of a document at most."""
        return self.budget * (self.passages or 1)

    def __str__(self) -> str:
        return f"{self.budget}" if self.passages is None else f"{self.passages} x {self.budget}"


@dataclass(frozen=True)
class Plan:
    """What is scored, and what is learned from the scores.

    Attributes:
        budgets: tokens a sequence that are measured, which become the range; the pipeline's own, and its range, when left out.
        passages: numbers of passages that are measured; the pipeline's own when left out.
        default: the budget to serve by default; learned when left out, see `cheapest_of_the_best`.
        queries: dev queries a collection.
        depth: candidates a query.
        least: dev queries with a relevant candidate, below which nothing is learned.
        first_stage: the fusion with the first stage to learn, too; None: the pipeline's stays as it is.
        second_look: how many documents, and further blocks of each, a second look reads; None: as many as the pipeline's.
        use: the features that may get a weight; the logit alone keeps the model's own order.
    """

    budgets: Sequence[int] = ()
    passages: Sequence[int] = ()
    default: int | None = None
    queries: int = 200
    depth: int = 100
    least: int = LEAST
    first_stage: str | None = None
    second_look: tuple[int, int] | None = None
    use: Sequence[str] = FEATURES

    def look(self, config: PipelineConfig) -> SecondLook | None:
        """The second look whose weights are learned; None if there is none."""
        if self.second_look is None:
            return config.second_look
        documents, blocks = self.second_look
        return SecondLook(documents=documents, blocks=blocks)

    def settings(self, config: PipelineConfig) -> list[Setting]:
        """Every budget with every number of passages."""
        budgets = list(dict.fromkeys(self.budgets or [config.packing.budget]))
        passages: list[int | None] = [*dict.fromkeys(self.passages)] or [None]
        return [Setting(budget, count) for budget in budgets for count in passages]


class DevSplit(NamedTuple):
    """The queries and candidates of a collection that are scored.

    Attributes:
        collection: gives the texts.
        candidates: the first-stage run of the drawn dev queries, cut to the depth that is scored.
        name: the collection's name with a digest of all texts and candidates; files of kept scores are named by it.
    """

    collection: Collection
    candidates: Run
    name: str

    @classmethod
    def draw(cls, collection: Collection, plan: Plan) -> Self:
        """Draw the plan's dev queries with their first-stage candidates. Raises CollectionError for a missing text."""
        drawn = sampled_run(collection, "dev", plan.queries, plan.depth)
        digest = hashlib.sha256()
        for query, scores in drawn.items():
            digest.update(repr((query, collection.query(query), list(scores))).encode())
        for document in sorted({document for scores in drawn.values() for document in scores}):
            one = collection.document(document)
            digest.update(content_digest(one.title, one.text))
        return cls(collection, drawn, f"{collection.name}-{digest.hexdigest()[:16]}")


def calibrate(system: Calibrated, collections: Sequence[Collection], plan: Plan) -> tuple[Fusion, dict[str, Any]]:
    """Fit the fusion, choose budget and passages if several are measured, and write all with their quality.

    The relevance score becomes the sigmoid of the fitted fusion, whatever it was before.

    Args:
        system: the run or bundle.
        collections: the collections whose dev splits are scored.
        plan: what is measured.

    Returns:
        The fusion and the quality that were written.

    Raises ValueError for settings that cannot be served, and for too few dev queries to learn from.
    """
    config, settings = system.pipeline.config, plan.settings(system.pipeline.config)
    _check(system.pipeline, settings, plan.default)
    distinct_names(collections)
    splits = [DevSplit.draw(collection, plan) for collection in collections]
    by_split = [_score(system, split, settings) for split in splits]
    scored = dict(zip(settings, map(list, zip(*by_split, strict=True)), strict=True))
    start = system.start()
    fusions = {setting: fit_fusion(scores, plan.use, start, plan.least) for setting, scores in scored.items()}
    served = [setting for setting in settings if plan.default in (None, setting.budget)]
    choice = cheapest_of_the_best({setting: _reciprocal_ranks(scored[setting], fusions[setting]) for setting in served})
    fusion, fitted_on = fusions[choice], scored[choice]
    look, looked = _second_look(system, splits, choice, fusion, fitted_on, plan.look(config))
    quality = {
        "dev": quality_table({str(setting): scores for setting, scores in scored.items()}, fusion),
        "calibration": {
            "setting": str(choice),
            "budget": choice.budget,
            "fitted_on": "the dev queries measured here",
            "expected_error": calibration_error(looked, fusion),
            "reliability": {s.collection.name: reliability(s, fusion) for s in looked},
            **_answers(looked, fusion),
        },
    }
    if look is not None:
        quality["second_look"] = {s.collection.name: s.measure(fusion) for s in looked}
    with_budgets = _with_budgets(config, plan.budgets or config.packing.budget_range, choice.budget)
    aggregator = config.aggregator if choice.passages is None else with_passages(config, choice.passages)
    threshold = quality["calibration"].get("threshold", {}).get("score")
    spans, spans_quality = _spans(system, splits, choice, [one.run(fusion) for one in looked])
    quality["calibration"] |= spans_quality
    learned = {"fusion": fusion, "activation": Activation(), "aggregator": aggregator, "min_score": threshold}
    learned |= {"spans": spans or config.spans, "second_look": look}
    if plan.first_stage is not None:
        learned["first_stage"], quality["first_stage"] = _first_stage(plan.first_stage, splits, looked, fusion)
    system.write(with_budgets.model_copy(update=learned), quality)
    return fusion, quality


def _second_look(
    system: Calibrated,
    splits: Sequence[DevSplit],
    setting: Setting,
    fusion: Fusion,
    scored: Sequence[DevScores],
    look: SecondLook | None,
) -> tuple[SecondLook | None, Sequence[DevScores]]:
    """The second look with learned weights, and the dev scores after it; those of the first look if there is none."""
    if look is None:
        return None, scored
    seen = []
    for split, scores in zip(splits, scored, strict=True):
        ranker = system.ranker(system.own_ranker(split.collection, setting.budget), setting.passages)
        seen.append(look_at_dev(scores, ranker.with_pipeline(fusion=fusion), look))
    learned = fit_second_look(seen, fusion)
    return learned, with_look(seen, learned)


def _first_stage(
    name: str, splits: Sequence[DevSplit], scored: Sequence[DevScores], fusion: Fusion
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """A fusion with the first stage, learned on dev, and the measures of the fused runs by collection."""
    held_out = [
        HeldOut(split.collection.qrels, split.candidates, one.run(fusion)) for split, one in zip(splits, scored, strict=True)
    ]
    learned = learn(name, held_out)
    quality = {}
    for split, one in zip(splits, held_out, strict=True):
        run = fuse_runs(learned, one.first, one.model)
        quality[split.collection.name] = means(per_query(one.qrels, run, run))
    return learned.describe(), quality


def _spans(
    system: Calibrated, splits: Sequence[DevSplit], setting: Setting, runs: Sequence[Run]
) -> tuple[SpanScores | None, dict[str, Any]]:
    """The fitted probability that a sentence answers, and its calibration errors; None and empty if the model marks no tokens."""
    read: dict[str, list[ReadDocument]] = {}
    for split, fused in zip(splits, runs, strict=True):
        judged = {query: _judged_documents(split, query) for query in split.candidates}
        ranker = system.ranker(system.own_ranker(split.collection, setting.budget), setting.passages)
        if found := read_documents(ranker, judged, fused, setting.budget):
            read[split.collection.name] = found
    if not any(one.labels.any() for documents in read.values() for one in documents):
        return None, {}
    scores = fit_spans(list(read.values()))
    errors = {}
    for name, documents in read.items():
        labels = np.concatenate([one.labels for one in documents])
        if len(labels):
            errors[name] = calibration_gap(np.concatenate(span_probabilities(documents, scores)), labels)
    return scores, {"spans": {name: {"expected_error": error} for name, error in errors.items()}}


def _judged_documents(split: DevSplit, query: str) -> list[str]:
    """The candidates whose sentences are judged: the first SENTENCE_DEPTH and the relevant ones."""
    grades = split.collection.qrels.get(query, {})
    return [name for place, name in enumerate(split.candidates[query]) if place < SENTENCE_DEPTH or grades.get(name, 0) > 0]


def _answers(scored: Sequence[DevScores], fusion: Fusion) -> dict[str, Any]:
    """How well the best score of a query tells whether a candidate answers, and the threshold for it; empty without both cases."""
    by_collection = {one.collection.name: top_scores(one, fusion) for one in scored}
    usable = {name: tops for name, tops in by_collection.items() if len(tops.answered) and len(tops.unanswered)}
    if not usable:
        return {}
    of_each = [[top_scores(one, fusion, most) for most in LISTS] for one in scored if one.collection.name in usable]
    threshold = best_threshold(list(chain(*of_each)))
    reached = {name: at_threshold([tops], threshold.score) for name, tops in usable.items()}
    return {
        "answers": {
            name: {
                "auroc": auroc(tops.answered, tops.unanswered),
                "top_error": top_gap(tops),
                "recall": reached[name].recall,
                "refused": reached[name].refused,
            }
            for name, tops in usable.items()
        },
        "threshold": {
            **threshold._asdict(),
            "interval": threshold_interval(of_each),
            "queries": sum(len(tops.answered) for tops in usable.values()),
            "unanswered": "the same queries without their relevant candidates",
        },
    }


def cheapest_of_the_best(values: Mapping[Setting, Sequence[float]]) -> Setting:
    """The setting of fewest tokens whose mean is at most one standard error below the best mean.

    The one-standard-error rule (Breiman et al. 1984, "Classification and Regression Trees", section 3.4.3), with the error of the
    paired differences, since all settings are measured on the same queries.

    Args:
        values: a measure's values by query, for each setting; all settings have the same queries.
    """
    best = np.asarray(max(values.values(), key=np.mean), dtype=np.float64)
    good = []
    for setting, by_query in values.items():
        lost = best - np.asarray(by_query, dtype=np.float64)
        error = lost.std(ddof=1) / len(lost) ** 0.5 if len(lost) > 1 else 0.0
        if lost.mean() <= error:
            good.append(setting)
    return min(good, key=lambda setting: setting.cost)


def calibration_tables(fusion: Fusion, quality: Mapping[str, Any]) -> str:
    """Tables of what was learned and measured."""
    weights = [["", *Fusion.model_fields], ["fusion", *(f"{value:.4g}" for value in fusion.model_dump().values())]]
    rows = [(name, setting, row) for name, settings in quality["dev"].items() for setting, row in settings.items()]
    head = ["dev", "budget", *rows[0][2]]
    measured = [head, *([name, setting, *(f"{value:.4g}" for value in row.values())] for name, setting, row in rows)]
    calibration = quality["calibration"]
    error = f"expected calibration error at {calibration['setting']} tokens: {calibration['expected_error']:.3f}"
    after = _table("after the second look", quality.get("second_look")), _table("with the first stage", quality.get("first_stage"))
    parts = [markdown(weights), markdown(measured), *after[0], error, *_answer_tables(calibration), *after[1]]
    return "\n\n".join(parts)


def _table(name: str, fused: Mapping[str, Mapping[str, float]] | None) -> list[str]:
    """A table of measures by collection; empty if nothing was measured."""
    if not fused:
        return []
    head = [name, *next(iter(fused.values()))]
    return [markdown([head, *([name, *(f"{value:.4g}" for value in row.values())] for name, row in fused.items())])]


def _answer_tables(calibration: Mapping[str, Any]) -> list[str]:
    """A table and a sentence on how well the best score tells whether a candidate answers; empty if it was not measured."""
    if "threshold" not in calibration:
        return []
    head = ["is there an answer?", "AUROC", "calibration error of the best", "recall of the threshold", "refused by it"]
    rows = [[name, *(f"{row[figure]:.3f}" for figure in ANSWER_FIGURES)] for name, row in calibration["answers"].items()]
    found = calibration["threshold"]
    rates = f"precision {found['precision']:.3f}, recall {found['recall']:.3f}, {found['refused']:.3f} of the others refused"
    interval = "from {} queries; {:.3f} to {:.3f} with others".format(found["queries"], *found["interval"])
    return [markdown([head, *rows]), f"threshold {found['score']:.3f} for min_score ({interval}): {rates}"]


def _check(pipeline: Pipeline, settings: Sequence[Setting], default: int | None) -> None:
    """Raise ValueError for settings that cannot be served, before any work."""
    config, budgets = pipeline.config, [setting.budget for setting in settings]
    if default is not None and default not in budgets:
        raise ValueError(f"--default {default} is not among --budgets {' '.join(map(str, dict.fromkeys(budgets)))}")
    least = config.packing.budget_range[0]
    if config.prompt is not None and min(budgets) < least:
        raise ValueError(f"--budgets: {min(budgets)} has no room beside the prompt; this model's sequences begin at {least} tokens")
    _with_budgets(config, budgets, default or budgets[0])
    for setting in settings:
        if setting.passages is not None:
            with_passages(config, setting.passages)


def _with_budgets(config: PipelineConfig, budgets: Sequence[int], default: int) -> PipelineConfig:
    """The description with the measured budgets as its range. Raises ValueError for budgets that cannot be served."""
    measured = {"budget": default, "budget_range": (min(budgets), max(budgets))}
    try:
        packing = PackingConfig.model_validate(config.packing.model_dump() | measured)
        return PipelineConfig.model_validate(config.model_dump() | {"packing": packing})
    except ValidationError as error:
        raise ValueError(f"--budgets: {problems(error)}") from None


def _score(system: Calibrated, split: DevSplit, settings: Sequence[Setting]) -> list[DevScores]:
    """Scores of a collection's dev queries in each setting: read if they were kept, else computed and kept.

    The model is loaded once for all settings, and each document is prepared once.
    """
    longest = max(setting.budget for setting in settings)
    own_ranker = functools.cache(lambda: system.own_ranker(split.collection, longest))
    scored = []
    for setting in settings:
        passages = setting.passages or system.pipeline.config.aggregator.get("passages", 1)
        path = system.scores_directory / f"{split.name}-{passages}x{setting.budget}.npz"
        if not path.exists():
            ranker = system.ranker(own_ranker(), setting.passages)
            write_scores(score_dev(ranker, split.candidates, setting.budget), path)
        scored.append(read_scores(path, split.collection))
    return scored


def _reciprocal_ranks(scored: Sequence[DevScores], fusion: Fusion) -> list[float]:
    """RR@10 of every query of every collection."""
    return [value for scores in scored for value in scores.values(fusion)["RR@10"].values()]
