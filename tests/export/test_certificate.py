"""The certificate of an import, and the proof that a service gives its scores; every family's in test_families_served."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from export import ExportError
from export.certificate import ALLOWED, certify, differences, mixed_pairs, served_logits, verify
from export.options import ImportOptions
from export.verify_cli import main
from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import ScoreError
from keyblock.scoring import score_documents
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.support.serving import Service

FEW = ImportOptions(pairs=24)
QUERIES, TEXTS = ["a river", "why do bridges fall"], ["The river flooded the bridge. " * 30, "Stones, and a city by the sea."]


class Counting:
    """A model whose logit is a sequence's length, and something more."""

    def __init__(self, more: float = 0.0) -> None:
        self.more = more

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        return np.asarray([len(packed.ids) + self.more for packed in sequences], dtype=np.float32)

    choose = outputs

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        return states[:, 0, 0]


@pytest.fixture(scope="module")
def grown(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    packing = {"query_tokens": 16, "budget": 64, "budget_range": (48, 128), "grow": True}
    parts = {
        "segmenter": {"name": "sentences", "block_tokens": 16},
        "packing": packing,
        "aggregator": {"name": "max", "passages": 3},
    }
    return Pipeline(PipelineConfig.model_validate(parts), tokenizer, frequencies)


def test_pairs_are_of_all_lengths_and_fit_one_sequence(grown: Pipeline) -> None:
    pairs = mixed_pairs(grown, QUERIES, TEXTS, 200)
    assert pairs == mixed_pairs(grown, QUERIES, TEXTS, 200), "the same ones each time"
    lengths = served_logits(grown, Counting(), pairs)
    assert lengths.max() <= 128
    assert np.quantile(lengths, [0.05, 0.5, 0.95]) == pytest.approx([9, 25, 126], abs=12)
    assert {query for query, _ in pairs} == set(QUERIES)


class Damaged(Counting):
    """A graph's own words where its weights are NaN."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        raise ScoreError("the graph gave outputs that are not finite")


def test_a_certificate_by_hand(grown: Pipeline) -> None:
    pairs = mixed_pairs(grown, QUERIES, TEXTS, 20)
    expected = served_logits(grown, Counting(), pairs)
    certificate = certify(expected + np.float32(0.0005), grown, Counting(), pairs)
    assert certificate["logits"]["max"] == pytest.approx(0.0005, abs=1e-5)
    assert certificate["logits"]["pairs"] == 20
    assert certificate["allowed"] == ALLOWED, "logits are lengths, which span more than a unit"
    assert certificate["tokens_of_passages"]["most"] > certificate["tokens_of_passages"]["least"] >= 1
    with pytest.raises(ExportError, match=r"differ from transformers' by up to 0\.01"):
        certify(expected, grown, Counting(0.01), pairs)
    with pytest.raises(ExportError, match="logits that are not finite"):
        certify(np.where(np.arange(20) == 3, np.nan, expected), grown, Counting(), pairs)
    with pytest.raises(ExportError, match="the model gives logits that are not finite: its weights are damaged"):
        certify(np.full(20, np.nan, np.float32), grown, Damaged(), pairs)


def test_a_model_that_tells_nothing_apart_proves_nothing() -> None:
    with pytest.raises(ExportError, match=r"gives every pair the logit 1\.5"):
        differences(np.full(5, 1.5, np.float32), np.full(5, 1.5, np.float32))


def test_a_text_of_several_passages_is_no_pair(grown: Pipeline) -> None:
    with pytest.raises(ExportError, match="became 3 passages where one was due"):
        served_logits(grown, Counting(), [("river", "The river flooded the bridge. " * 200)])


def scorer_of(bundle_path: Path, more: float = 0.0) -> Callable[[str, Sequence[str], int], list[float]]:
    """A function that scores texts as a service does, in this process."""
    bundle = load_bundle(bundle_path)
    model, pipeline = GraphModel.open(bundle, Provider.CPU, 1), bundle.pipeline

    def ask(query: str, texts: Sequence[str], longest: int) -> list[float]:
        documents = pipeline.prepare_documents(texts)
        return [float(x) + more for x in score_documents(pipeline, pipeline.prepare_query(query), documents, model, longest).logits]

    return ask


def test_a_service_of_less_precision(imported: Callable[[str], Path], checkpoint: Callable[[str], Path]) -> None:
    """A little more than is allowed is told with the digits that show it."""
    reason = r"it computes in bf16; .*--provider cpu --precision fp32"
    said = rf"by up to 0\.00104\d* over 24 pairs \(0\.001 is allowed where logits span \S+\): {reason}"
    with pytest.raises(ExportError, match=said):
        verify(imported("bert"), str(checkpoint("bert")), scorer_of(imported("bert"), more=0.00104), FEW, lambda: "bf16")


def test_a_calibrated_bundle_proves_nothing_of_the_model(
    imported: Callable[[str], Path], checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(imported("bert"), tmp_path, dirs_exist_ok=True)
    manifest = json.loads((tmp_path / "bundle.json").read_text("utf-8"))
    manifest["pipeline"]["fusion"]["best_block"] = 0.5
    (tmp_path / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ExportError, match="was calibrated, so its raw scores are not the model's alone"):
        verify(tmp_path, str(checkpoint("bert")), scorer_of(tmp_path), FEW)


def test_a_missing_service_is_reported_before_the_checkpoint_is_read(imported: Callable[[str], Path]) -> None:
    def away(query: str, texts: Sequence[str], longest: int) -> list[float]:
        raise ConnectionError("nobody")

    with pytest.raises(ConnectionError):
        verify(imported("bert"), "/no/such/checkpoint", away, FEW)


def test_a_checkpoint_that_cannot_read_what_the_bundle_reads(
    imported: Callable[[str], Path], checkpoint: Callable[[str], Path]
) -> None:
    """Its tokens are of fewer letters, so that it has more of them than its window."""
    with pytest.raises(ExportError, match=r"cannot read what the bundle reads .*: the bundle was made of another"):
        verify(imported("bert"), str(checkpoint("roberta")), scorer_of(imported("bert")), FEW)


def test_texts_are_sent_in_batches(imported: Callable[[str], Path], checkpoint: Callable[[str], Path]) -> None:
    sizes: list[int] = []
    ask = scorer_of(imported("bert"))

    def counted(query: str, texts: Sequence[str], longest: int) -> list[float]:
        sizes.append(len(texts))
        return ask(query, texts, longest)

    assert verify(imported("bert"), str(checkpoint("bert")), counted, ImportOptions(pairs=80))["pairs"] == 80
    assert sizes == [1, *[8, 2] * 8]


def test_a_running_service_is_proven_and_asked_for_the_precision_that_was_the_reason(
    imported: Callable[[str], Path],
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Service(1, tmp_path / "log", bundle=imported("bert"), provider="cpu", precision="fp32") as service:
        given = [str(imported("bert")), "--url", service.url, "--model", str(checkpoint("bert")), "--pairs", "24"]
        assert main(given) == 0
        found = json.loads(capsys.readouterr().out)
        monkeypatch.setattr("export.certificate.ALLOWED", -1.0)  # no difference at all
        assert main(given) == 2
    assert found["pairs"] == 24
    assert found["max"] <= 1e-3
    said = capsys.readouterr().err
    assert re.search(r"\(-\S+ is allowed where logits span \S+\): it computes in fp32, so it serves another model\n", said), said


@pytest.mark.parametrize(
    ("bundle", "problem"), [("imported", "keyblock-verify: http://127.0.0.1:9: "), ("missing", "bundle.json: is missing")]
)
def test_no_service_and_no_bundle_are_one_line(
    imported: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], bundle: str, problem: str
) -> None:
    path = imported("bert") if bundle == "imported" else tmp_path
    capsys.readouterr()
    assert main([str(path), "--url", "http://127.0.0.1:9", "--model", "any", "--pairs", "4"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("keyblock-verify: ")
    assert problem in said


def test_one_pair_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--url", "http://127.0.0.1:9", "--model", "any", "--pairs", "1"])
    assert "1 pair proves nothing: 2 or more" in capsys.readouterr().err
