"""Calibrating a run: scores of its model on dev, the fusion fitted to them, and what it measures, written into the run."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from keyblock.bundle import MANIFEST_FILE, load_bundle
from keyblock.evidence import Fusion
from keyblock.pipeline import PackingConfig
from training.collections.collection import Collection, distinct_names
from training.collections.first_stage import first_stage_run
from training.collections.json_files import write_json
from training.collections.types import Run
from training.evaluation.calibration import (
    DevScores,
    calibration_error,
    fit_fusion,
    quality_table,
    read_scores,
    reliability,
    score_dev,
    write_scores,
)
from training.evaluation.evaluate import sample
from training.evaluation.ranking import CHOOSER, LocalRanker, load_run_pipeline, run_ranker
from training.evaluation.tables import markdown
from training.models.checkpoints import chosen
from training.models.starting import find_start
from training.recipe import load_recipe, problems

LEAST = 10  # dev queries with a relevant candidate: fewer teach chance, prior or not


def calibrate(
    run: Path,
    collections: Sequence[Collection],
    budgets: Sequence[int] | None = None,
    default: int | None = None,
    queries: int = 200,
    depth: int = 100,
    least: int = LEAST,
) -> tuple[Fusion, dict[str, Any]]:
    """Fit the run's fusion at the default budget, and write it with its quality into RUN/pipeline.json and RUN/quality.json.

    Args:
        run: the run directory.
        collections: whose dev split is scored.
        budgets: tokens a sequence that are measured; the run's own when left out.
        default: the budget to serve by default; the first of `budgets` when left out.
        queries: dev queries a collection.
        depth: candidates a query.
        least: dev queries with a relevant candidate, below which nothing is learned.

    Raises ValueError for budgets that cannot be served, and for dev queries that nothing can be learned from.
    """
    config = load_run_pipeline(run).config
    budgets = budgets or [config.packing.budget]
    packing = _served(config.packing, budgets, default or budgets[0])
    distinct_names(collections)
    kept = run / "dev-scores" / _fingerprint(run)
    systems = [(run_ranker(run, c, packing.budget_range[1]), first_stage_run(c, "dev", depth)) for c in collections]
    scored = {budget: [_score_dev(*system, queries, depth, budget, kept) for system in systems] for budget in budgets}
    fitted_on = scored[packing.budget]
    fusion = fit_fusion(fitted_on, start=starting_fusion(run), least=least)
    quality = {
        "dev": quality_table(scored, fusion),
        "calibration": {
            "budget": packing.budget,
            "fitted_on": "the dev queries measured here",
            "expected_error": calibration_error(fitted_on, fusion),
            "reliability": {s.collection.name: reliability(s, fusion) for s in fitted_on},
        },
    }
    write_json(run / "pipeline.json", config.model_copy(update={"fusion": fusion, "packing": packing}).model_dump(mode="json"))
    write_json(run / "quality.json", quality)
    return fusion, quality


def calibration_tables(fusion: Fusion, quality: Mapping[str, Any]) -> str:
    """What was learned and measured, as tables."""
    weights = [["", *Fusion.model_fields], ["fusion", *(f"{value:.4g}" for value in fusion.model_dump().values())]]
    rows = [(name, budget, row) for name, budgets in quality["dev"].items() for budget, row in budgets.items()]
    head = ["dev", "budget", *rows[0][2]]
    measured = [head, *([name, budget, *(f"{value:.4g}" for value in row.values())] for name, budget, row in rows)]
    calibration = quality["calibration"]
    error = f"expected calibration error at {calibration['budget']} tokens: {calibration['expected_error']:.3f}"
    return "\n\n".join([markdown(weights), markdown(measured), error])


def starting_fusion(run: Path) -> Fusion | None:
    """The fusion of the run or bundle that the run's recipe begins from; None without one, or where it is uncalibrated or gone."""
    path = run / "recipe.yaml"
    init = load_recipe(path).init if path.exists() else None
    if init is None or not (begun := find_start(Path(init))).is_dir():
        return None
    pipeline = load_bundle(begun).pipeline if (begun / MANIFEST_FILE).exists() else load_run_pipeline(begun)
    return None if pipeline.config.fusion == Fusion() else pipeline.config.fusion


def _served(packing: PackingConfig, budgets: Sequence[int], default: int) -> PackingConfig:
    """The packing with the budgets that are measured. Raises ValueError before any of that work."""
    if default not in budgets:
        raise ValueError(f"--default {default} is not among --budgets {' '.join(map(str, budgets))}")
    try:
        return PackingConfig.model_validate(
            packing.model_dump() | {"budget": default, "budget_range": (min(budgets), max(budgets))}
        )
    except ValidationError as error:
        raise ValueError(f"--budgets: {problems(error)}") from None


def _score_dev(ranker: LocalRanker, candidates: Run, queries: int, depth: int, budget: int, kept: Path) -> DevScores:
    """Scores of the run's model on dev: kept ones where there are, else computed and kept."""
    collection = ranker.preparation.collection
    path = kept / f"{collection.name}-{budget}-{queries}x{depth}.npz"
    if path.exists():
        return read_scores(path, collection)
    scores = score_dev(ranker, sample(sorted(candidates), queries), candidates, depth, budget)
    write_scores(scores, path)
    return scores


def _fingerprint(run: Path) -> str:
    """A name for what decides a run's scores: weights, frequencies, and the pipeline but for what calibration writes into it."""
    pipeline = load_run_pipeline(run)
    config = pipeline.config
    described = config.model_dump_json(exclude={"fusion": True, "packing": {"budget", "budget_range"}})
    digest = hashlib.sha256(described.encode())
    weights = [path for directory in (chosen(run), run / CHOOSER) for path in sorted(directory.glob("*.safetensors"))]
    for path in (*weights, run / "frequencies.tsv"):
        digest.update(path.read_bytes())
    digest.update(pipeline.encoder.fingerprint if pipeline.encoder else b"")
    return digest.hexdigest()[:16]
