"""A bundle as what is calibrated: a copy is written, its scores are the run's, and passages are counted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from keyblock.bundle import TOKENIZER_FILE, Bundle, BundleError, write_bundle
from keyblock.fusion import FEATURES, Fusion
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel
from training.data.collection import Collection
from training.evaluate.calibration import systems as calibrated
from training.evaluate.calibration.systems import CalibratedBundle, CalibratedRun, fingerprint
from training.evaluate.ranking import run_ranker


@pytest.fixture(scope="module")
def passages_bundle(toy_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The toy's bundle, where each of the two best blocks is a passage of its own."""
    config = toy_bundle.manifest.pipeline.model_copy(update={"aggregator": {"name": "max", "passages": 2}})
    manifest = toy_bundle.manifest.model_copy(update={"pipeline": config})
    files = {name: toy_bundle.path / name for name in toy_bundle.manifest.files}
    return write_bundle(tmp_path_factory.mktemp("passages") / "bundle", manifest, files)


def test_the_bundle_scores_as_its_run_does(
    run_copy: Path, toy_bundle: Bundle, toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in fp32, on machines with bf16 too."""
    monkeypatch.setattr(CalibratedBundle, "model", GraphModel.open(toy_bundle, "cpu"))
    bundle, run = CalibratedBundle(toy_bundle.path, tmp_path / "out"), CalibratedRun(run_copy)
    query, candidates = next(iter(toy.run("dev").items()))
    of_bundle = bundle.own_ranker(toy, 80).score(query, list(candidates)).logits
    of_run = run_ranker(run_copy, toy, 80, bf16=False).score(query, list(candidates)).logits
    assert of_bundle == pytest.approx(of_run, abs=1e-3)
    assert bundle.start() == Fusion(bias=-2.0, logit=0.7, best_block=0.2, coverage=0.5)
    assert run.start() is None


def test_another_number_of_passages_reads_more(passages_bundle: Bundle, toy: Collection, tmp_path: Path) -> None:
    system = CalibratedBundle(passages_bundle.path, tmp_path / "out")
    query, candidates = next(iter(toy.run("dev").items()))
    own = system.own_ranker(toy, 80)
    read = [len(system.ranker(own, count).score(query, list(candidates)).selections[0].sequences) for count in (1, None, 3)]
    assert read == [1, 2, 3]


def test_a_joint_bundle_has_no_number_of_passages(toy_bundle: Bundle, toy: Collection, tmp_path: Path) -> None:
    system = CalibratedBundle(toy_bundle.path, tmp_path / "out")
    own = system.own_ranker(toy, 80)
    with pytest.raises(ValueError, match="--passages: aggregator 'joint' reads no number of passages; leave it out"):
        system.ranker(own, 2)


@pytest.mark.parametrize("inside", [".", "calibrated", "further/in"])
def test_nothing_is_written_into_the_bundle(toy_bundle: Bundle, inside: str) -> None:
    with pytest.raises(BundleError, match=r"lies in the bundle .*; give a directory outside of it"):
        CalibratedBundle(toy_bundle.path, toy_bundle.path / inside)


def test_the_fingerprint_is_of_what_calibration_leaves_alone(toy_bundle: Bundle, change_pipeline: Callable[..., Pipeline]) -> None:
    tokenizer = toy_bundle.path / TOKENIZER_FILE
    prints = {
        key: fingerprint(change_pipeline(**parts), tokenizer, [content])
        for key, parts, content in (
            ("plain", {}, b"weights"),
            ("fusion", {"fusion": {"logit": 3.0}}, b"weights"),
            ("activation", {"activation": {"name": "identity"}}, b"weights"),
            ("segmenter", {"segmenter": {"name": "window"}}, b"weights"),
            ("selector", {"selector": {"name": "first"}}, b"weights"),
            ("weights", {}, b"other"),
        )
    }
    assert prints["plain"] == prints["fusion"] == prints["activation"]
    assert len({prints["plain"], prints["selector"], prints["segmenter"], prints["weights"]}) == 4


def test_scores_of_other_features_are_not_taken(
    toy_bundle: Bundle, toy_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = toy_bundle.path / TOKENIZER_FILE
    now = fingerprint(toy_pipeline, tokenizer, [])
    monkeypatch.setattr(calibrated, "FEATURES", FEATURES[:-1])
    assert fingerprint(toy_pipeline, tokenizer, []) != now
