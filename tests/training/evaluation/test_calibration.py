"""Fusion learned on scores whose truth is known, and on a real run's dev scores; thresholds and errors worked by hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keyblock.fusion import FEATURES, Fusion, sigmoid
from training.data.collection import Collection
from training.data.first_stage import first_stage_run
from training.data.types import FileError
from training.evaluate.calibration.fit import (
    MASS,
    DevScores,
    Tops,
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
from training.evaluate.ranking import run_ranker

TRUE = np.asarray([1.5, 0.8, 0.0, 0.4, 0.3, 0.0])  # weights in the order of FEATURES
Make = Callable[..., DevScores]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Dev scores of queries whose one relevant document is drawn by the softmax of the true weights."""

    def build(
        name: str = "synthetic", n_queries: int = 100, weights: np.ndarray = TRUE, seed: int = 0, copies: int = 1
    ) -> DevScores:
        rng = np.random.default_rng(seed)
        features, lines = {}, []
        for number in range(n_queries):
            rows = rng.normal(size=(20, len(FEATURES)))
            rows[:, MASS] = rows[0, MASS]  # the query's
            chance = np.exp(rows @ weights)
            relevant = rng.choice(20, p=chance / chance.sum())
            for copy in range(copies):
                features[f"q{number}-{copy}"] = rows
                lines.append(f"q{number}-{copy} 0 d{relevant} 1\n")
        path = tmp_path / name
        path.mkdir()
        (path / "qrels.tsv").write_text("".join(lines), encoding="utf-8")
        return DevScores(Collection(path), features, {query: [f"d{i}" for i in range(20)] for query in features})

    return build


def direction(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def probabilities(scores: DevScores, fusion: Fusion) -> tuple[np.ndarray, np.ndarray]:
    fused = np.concatenate([fusion.fuse(f[:, 0], f[:, 1:]) for f in scores.features.values()])
    return sigmoid(fused), np.concatenate([scores.labels(q) for q in scores.features])


def test_scores_are_probabilities_on_queries_not_learned_from(make: Make) -> None:
    fusion, fresh = fit_fusion([make(n_queries=400)]), make("fresh", n_queries=400, seed=1)
    p, labels = probabilities(fresh, fusion)
    assert p.mean() == pytest.approx(labels.mean(), rel=0.15)
    assert calibration_error([fresh], fusion) < 0.015
    uncalibrated = Fusion.from_weights(0.0, fusion.weights)
    assert calibration_error([fresh], uncalibrated) > 0.2


def test_every_collection_counts_the_same_however_large(make: Make) -> None:
    """One collection asks for feature 1, the other for feature 2; asking three times as often gains it nothing."""
    one, other = np.asarray([2.0, 0, 0, 0, 0, 0]), np.asarray([0, 2.0, 0, 0, 0, 0])
    small = fit_fusion([make("a", weights=one), make("b", weights=other, seed=1)])
    large = fit_fusion([make("c", weights=one), make("d", weights=other, seed=1, copies=3)])
    np.testing.assert_allclose(large.weights, small.weights, rtol=1e-3, atol=1e-4)
    assert large.bias == pytest.approx(small.bias, rel=1e-3)
    assert small.logit == pytest.approx(small.best_block, rel=0.4)


def test_the_mass_takes_back_what_long_queries_find_more(make: Make) -> None:
    """The logits of all documents of a query are higher by its mass, the right one's no more than the others'."""
    scores = make(n_queries=300)
    for rows in scores.features.values():
        rows[:, 0] += rows[:, MASS]
    fusion = fit_fusion([scores])
    assert fusion.mass == pytest.approx(-fusion.logit, rel=0.3)
    assert fit_fusion([scores], use=[name for name in FEATURES if name != "mass"]).mass == 0


def test_what_separates_perfectly_stays_finite(make: Make) -> None:
    scores = make(n_queries=20)
    for query, rows in scores.features.items():
        rows[:, 0] = 50 * scores.labels(query)
    fusion = fit_fusion([scores])
    p, labels = probabilities(scores, fusion)
    assert np.isfinite([*fusion.weights, fusion.bias]).all()
    assert ((p > 0.5) == (labels > 0)).all()


def test_queries_without_a_relevant_candidate(make: Make) -> None:
    scores = make(n_queries=50)
    with_misses = DevScores(
        scores.collection, scores.features | {"miss": np.zeros((20, len(FEATURES)))}, scores.documents | {"miss": ["x"] * 20}
    )
    assert with_misses.labels("miss").sum() == 0
    np.testing.assert_allclose(fit_fusion([with_misses]).weights, fit_fusion([scores]).weights, rtol=0.05)
    nothing = DevScores(scores.collection, {"miss": np.zeros((20, len(FEATURES)))}, {"miss": ["x"] * 20})
    with pytest.raises(ValueError, match="no dev query has a relevant document among its candidates"):
        fit_fusion([nothing])


def test_measures_by_hand(tmp_path: Path) -> None:
    """The fused scores of d0 to d2 are 3, 1 and 2: the relevant d2 is second, by logit alone it is last."""
    (tmp_path / "qrels.tsv").write_text("q 0 d2 1\n", encoding="utf-8")
    features = {"q": np.asarray([[2.0, 1.0, 0, 0, 0, 0], [1.5, -0.5, 0, 0, 0, 0], [1.0, 1.0, 0, 0, 0, 0]])}
    scores = DevScores(Collection(tmp_path), features, {"q": ["d0", "d1", "d2"]})
    assert scores.measure(Fusion(best_block=1.0))["RR@10"] == 0.5
    assert scores.measure(Fusion())["RR@10"] == pytest.approx(1 / 3)
    row = quality_table({"128": [scores]}, Fusion(best_block=1.0))[tmp_path.name]["128"]
    assert (row["RR@10"], row["RR@10 model alone"], row["queries"]) == (0.5, pytest.approx(1 / 3), 1)


def test_calibration_error_by_hand(tmp_path: Path) -> None:
    """Two candidates at 0.9, one of them relevant, two at 0.1, none relevant: gaps 0.4 and 0.1, half of the weight each."""
    (tmp_path / "qrels.tsv").write_text("q 0 d0 1\n", encoding="utf-8")
    logit = np.log(9)
    features = {"q": np.asarray([[sign * logit, 0, 0, 0, 0, 0] for sign in (1, 1, -1, -1)])}
    scores = DevScores(Collection(tmp_path), features, {"q": ["d0", "d1", "d2", "d3"]})
    assert calibration_error([scores], Fusion()) == pytest.approx(0.25)
    assert reliability(scores, Fusion()) == [
        {"mean_score": pytest.approx(0.1), "share_relevant": 0.0, "candidates": 2},
        {"mean_score": pytest.approx(0.9), "share_relevant": 0.5, "candidates": 2},
    ]


def test_dev_scores_of_a_real_run(toy_run: Path, toy_copy: Path) -> None:
    """The third candidate has no text: it counts as one that is very unlikely, and spoils no fit."""
    toy = Collection(toy_copy)
    void = list(toy.run("dev")["teacher?"])[2]
    toy.documents[void] = toy.documents[void]._replace(text="")  # type: ignore[index]
    ranker = run_ranker(toy_run, toy, bf16=False)
    candidates = first_stage_run(toy, "dev", depth=3)
    scores = score_dev(ranker, {query: candidates[query] for query in ("teacher?", "letter!")}, budget=80)
    assert scores.documents["teacher?"] == list(toy.run("dev")["teacher?"])[:3]
    assert scores.features["letter!"].shape == (3, len(FEATURES))
    pipeline = ranker.preparation.pipeline
    selection = pipeline.select(
        ranker.preparation.query("teacher?"), ranker.preparation.document(scores.documents["teacher?"][0]), 80
    )
    assert scores.features["teacher?"][0, 0] == pytest.approx(float(ranker.model.outputs([selection.packed])[0]), abs=1e-4)
    np.testing.assert_array_equal(scores.features["teacher?"][0, 1:], selection.evidence)
    assert scores.features["teacher?"][2, 0] == -100


@pytest.mark.parametrize("how", ["cut short", "other", "empty"])
def test_kept_scores_that_are_damaged(make: Make, tmp_path: Path, how: str) -> None:
    path, scores = tmp_path / "kept.npz", make(n_queries=3)
    write_scores(scores, path)
    whole = path.read_bytes()
    path.write_bytes({"cut short": whole[: len(whole) // 2], "other": b"no scores", "empty": b""}[how])
    with pytest.raises(FileError, match=r"kept\.npz: damaged, remove it to score again"):
        read_scores(path, scores.collection)


EMBEDDED = Fusion(bias=-6.0, logit=0.2, best_block=0.3, top_blocks=0.2, coverage=0.6)


def separable(scores: DevScores) -> DevScores:
    """Few queries in which the best block's score alone finds every relevant document: more weight on it is always better."""
    for query, rows in scores.features.items():
        rows[:, 1] = 9 + rows[:, 1] + 6 * scores.labels(query)
    return scores


def test_15_queries_move_a_calibrated_fusion_little(make: Make) -> None:
    """Without a prior the weight of best_block grows without bound on these, and scores reach 0.9999999."""
    scores = separable(make(n_queries=15))
    fusion = fit_fusion([scores], start=EMBEDDED, least=15)
    assert fusion.best_block < 5 * EMBEDDED.best_block
    p, labels = probabilities(scores, fusion)
    assert p.max() < 0.9999
    assert p[labels > 0].mean() > 5 * p[labels == 0].mean()


def test_two_queries_leave_the_weights_where_they_were(make: Make) -> None:
    start = Fusion(logit=0.2, coverage=2.0)
    assert direction(fit_fusion([make(n_queries=2)], start=start).weights, start.weights) > 0.9


def test_the_true_weights_are_found_wherever_it_starts(make: Make) -> None:
    scores = make(n_queries=400)
    fusion, alone = fit_fusion([scores], start=EMBEDDED), fit_fusion([scores])
    assert direction(alone.weights, TRUE) > 0.98
    assert direction(fusion.weights, TRUE) > 0.98
    assert abs(alone.top_blocks) < 0.15 * alone.logit
    np.testing.assert_allclose(fusion.weights, alone.weights, atol=0.1)
    few = fit_fusion([scores], use=["logit", "coverage"], start=EMBEDDED)
    assert few.logit > 2 * few.coverage > few.best_block == few.top_blocks == 0, "features that are not used stay out"


def tops(answered: list[float], unanswered: list[float], right: list[bool] | None = None) -> Tops:
    return Tops(np.asarray(answered), np.asarray(unanswered), np.asarray(right or [True] * len(answered)))


def test_each_query_is_seen_with_its_answer_and_without(toy_path: Path) -> None:
    """river-3 answers river?; it is the best, and without it river-0 is. For stone? another one is placed above stone-3."""
    features = np.zeros((3, len(FEATURES)))
    features[:, 0] = [2.0, -1.0, -3.0]
    documents = {"river?": ["river-3", "river-0", "stone-1"], "stone?": ["stone-0", "stone-3", "river-2"]}
    scores = DevScores(Collection(toy_path), dict.fromkeys(documents, features), documents)
    found = top_scores(scores, Fusion())
    assert found.answered == pytest.approx(sigmoid(np.asarray([2.0, 2.0])))
    assert found.unanswered == pytest.approx(sigmoid(np.asarray([-1.0, 2.0])))
    assert found.right.tolist() == [True, False]
    alone = top_scores(scores, Fusion(), 1)
    assert alone.answered == pytest.approx(sigmoid(np.asarray([2.0, -1.0])))
    assert alone.right.tolist() == [True, True]
    assert set(alone.unanswered.tolist()) <= set(sigmoid(features[:, 0]).tolist())
    assert alone.unanswered[0] < sigmoid(np.asarray(0.0)), "without river-3"


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order() -> None:
    above, below = np.asarray([0.9, 0.4, 0.4]), np.asarray([0.4, 0.1])
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in above for b in below]
    assert auroc(above, below) == pytest.approx(np.mean(pairs))


def test_the_threshold_lets_the_answered_through_and_stops_the_others() -> None:
    """By hand: at .5 three of four answered pass and one of four unanswered: precision 3/4, recall 3/4, refused 3/4."""
    found = best_threshold([tops([0.9, 0.8, 0.7, 0.3], [0.6, 0.2, 0.2, 0.1])])
    assert found.recall + found.refused == pytest.approx(1.75)  # just under .3: all four pass, and one of the others
    one = at_threshold([tops([0.9, 0.8, 0.7, 0.3], [0.6, 0.2, 0.2, 0.1])], 0.5)
    assert (one.precision, one.recall, one.refused) == pytest.approx((0.75, 0.75, 0.75))


def test_collections_count_the_same_whatever_their_sizes() -> None:
    large, small = tops([0.9] * 100, [0.8] * 100), tops([0.3], [0.1])
    assert at_threshold([large, small], 0.85)[1:] == pytest.approx((1.0, 0.5, 1.0))


def test_the_calibration_error_of_a_case_by_hand() -> None:
    """Bin .1: scores .1 and nearly .2, one of two relevant: gap .35; bin .8: one, not relevant: .85; bin .9: one, relevant: .05."""
    scores, labels = np.asarray([0.1, 0.19999, 0.85, 0.95]), np.asarray([0.0, 1.0, 0.0, 1.0])
    assert calibration_gap(scores, labels) == pytest.approx((0.35 * 2 + 0.85 + 0.05) / 4, abs=1e-4)
    assert top_gap(tops([0.95], [0.05])) == pytest.approx(0.05)
    assert top_gap(tops([0.95], [0.95])) == pytest.approx(0.45)


def test_few_queries_leave_the_threshold_open_and_many_settle_it() -> None:
    """Answered ones score .6 to .9 and the others .1 to .4: any value between them is as good."""
    rng = np.random.default_rng(0)
    few, many = (tops(rng.uniform(0.6, 0.9, n).tolist(), rng.uniform(0.1, 0.4, n).tolist()) for n in (8, 400))
    (low, high), settled = threshold_interval([[few]]), threshold_interval([[many]])
    assert 0.4 < settled[0] <= settled[1] < 0.6
    assert high - low > 2 * (settled[1] - settled[0])
    assert threshold_interval([[few, few, few]]) == (low, high), "the same queries in lists of other lengths settle nothing"
