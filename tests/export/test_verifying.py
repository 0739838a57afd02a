"""Proving a service; the services of every family are proven in test_families_served."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from export import ExportError
from export.certificate import verify
from export.options import ImportOptions
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.scoring import score_documents

FEW = ImportOptions(pairs=24)


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
    for file in imported("bert").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
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
