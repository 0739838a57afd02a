import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export import ExportError
from export.certificate import ALLOWED
from export.import_cli import main
from export.importing import import_model, own_name
from export.options import ImportOptions, VariantKind
from keyblock.bundle import BundleError, load_bundle
from keyblock.fusion import Activation, Fusion
from keyblock.ranker import Ranker
from keyblock.runtime.providers import Provider, resolve
from tests.support.checkpoints import save_checkpoint

FEW = ImportOptions(pairs=16, provider=Provider.CPU)


def test_the_default_pipeline_is_passages_of_the_models_habit(imported: Callable[[str], Path]) -> None:
    bundle = load_bundle(imported("bert"))
    config = bundle.manifest.pipeline
    assert config.aggregator == {"name": "max", "passages": 3}
    assert config.segmenter["name"] == "structure"
    assert config.packing.grow
    assert (config.packing.budget, config.packing.budget_range[1]) == (128, 512)
    assert config.fusion == Fusion()
    assert config.activation == Activation()
    assert config.analyzer.name == "universal", "the tiny tokenizer spells the words of all languages alike"
    assert bundle.frequencies.n_documents == 0, "the general table is of English documents"
    assert bundle.manifest.provenance["import"]["labels"] == 1
    assert bundle.manifest.quality["import"]["provider"] == resolve(Provider.AUTO).provider


def test_an_unfit_place_is_refused_before_anything_is_done(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a letter", encoding="utf-8")
    with pytest.raises(BundleError, match="is not empty"):
        import_model("no-such-model", tmp_path, FEW)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("folder", "noted", "expected"),
    [
        ("model", "someone/their-reranker", "their-reranker"),
        ("model", "../models/bert", "model"),
        ("models--someone--a-reranker/snapshots/0a1b2c", "", "a-reranker"),
        ("mine", None, "mine"),
    ],
)
def test_a_model_keeps_its_own_name(tmp_path: Path, folder: str, noted: str | None, expected: str) -> None:
    source = tmp_path / folder
    source.mkdir(parents=True)
    (source / "config.json").write_text(json.dumps({} if noted is None else {"_name_or_path": noted}), encoding="utf-8")
    assert own_name(str(source)) == expected
    assert own_name("someone/bge-reranker-base") == "bge-reranker-base"


def test_a_graph_that_says_something_else_leaves_nothing(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.certificate.ALLOWED", 0.0)
    with pytest.raises(ExportError, match=r"the graph's logits differ from transformers' by up to .* over 16 pairs"):
        import_model(str(checkpoint("bert")), tmp_path / "out", FEW)
    assert list(tmp_path.iterdir()) == []


def test_weights_beyond_what_a_file_holds(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.storage.LARGEST", 10_000)
    bundle = import_model(str(checkpoint("xlm-roberta")), tmp_path / "out", FEW)
    assert {"model.onnx", "model.onnx.data"} <= bundle.manifest.files.keys()
    assert (bundle.path / "model.onnx.data").stat().st_size > 50_000
    with Ranker.open(bundle.path, provider="cpu") as ranker:
        ranking = ranker.rank("a bridge", ["The river took the bridge. " * 60, "Bread."], raw_scores=True)
    assert all(np.isfinite(one.relevance_score) for one in ranking)
    with pytest.raises(ExportError, match="the int8 graph has more than 2 GiB, which no variant may have"):
        import_model(str(checkpoint("xlm-roberta")), tmp_path / "int8", replace(FEW, variants=[VariantKind.INT8]))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_fixed_scales_are_for_models_of_our_own(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="int8-static is for models of keyblock-train"):
        import_model(str(checkpoint("bert")), tmp_path / "out", replace(FEW, variants=[VariantKind.INT8_STATIC]))
    assert not (tmp_path / "out").exists()


def test_an_import_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model of two labels, with options of every kind."""
    monkeypatch.setattr(ImportOptions, "pairs", 24)  # which the command would call too few
    source, out = save_checkpoint("bert", tmp_path / "two", labels=2), tmp_path / "out"
    options = (
        "--provider cpu --pairs 24 --joint --activation identity --scale 0.5 --name mine --precision fp16-weights --variant int8"
    )
    capsys.readouterr()
    assert main([str(source), "--out", str(out), *options.split()]) == 0
    said = capsys.readouterr()
    first, second, third = said.out.splitlines()
    assert first.startswith(f"{out}: ")
    assert "Attention" in first
    assert '"pace"' in second
    found = re.fullmatch(
        r"OK: logits differ from transformers' by up to (.*) over 24 pairs \((.*) is allowed where logits span (.*)\)", third
    )
    assert found is not None, third
    difference, limit, span = map(float, found.groups())
    assert difference <= limit == pytest.approx(min(1e-3, 1e-3 * span), rel=0.1)
    steps = [line.removeprefix("keyblock-import: ") for line in said.err.splitlines() if line.startswith("keyblock-import: ")]
    assert steps == [
        f"reading {source}",
        "writing its graph",
        "scoring 24 pairs of a query and a text with transformers",
        "scoring them with the graph",
        *["measuring scores and pace on provider cpu"] * 2,
    ]
    manifest = load_bundle(out).manifest
    assert (manifest.name, manifest.pipeline.aggregator["name"]) == ("mine", "joint")
    assert manifest.pipeline.activation.model_dump() == {"name": "identity", "scale": 0.5}
    assert manifest.provenance["import"]["labels"] == 2
    assert manifest.quality["certificate"]["logits"]["max"] <= ALLOWED
    assert 0 < manifest.quality["import"]["logits"]["max"] < 1, "half of the bytes"
    assert manifest.variants["int8"].quality["logits"]["max"] > 0, "and the loss of the variant is told"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{tmp}/none"], "no such directory"),
        (["{bert}", "--frequencies", "{tmp}/none"], "--frequencies {tmp}/none: "),
        (["{bert}", "--scale", "-1"], "--scale -1: must be a number above 0"),
        (["{bert}", "--scale", "nan"], "--scale nan: must be a number above 0"),
    ],
)
def test_errors_that_a_person_can_mend_are_one_line_and_leave_nothing(
    checkpoint: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    out, given = tmp_path / "out", [argument.format(tmp=tmp_path, bert=checkpoint("bert")) for argument in arguments]
    capsys.readouterr()  # what making the checkpoint may have printed
    assert main([*given, "--out", str(out)]) == 2
    said = capsys.readouterr().err.splitlines()
    *steps, problem = said
    assert steps in (
        [],
        [f"keyblock-import: reading {given[0]}"],
        [f"keyblock-import: reading {given[0]}", "keyblock-import: writing its graph"],
    )
    assert problem.startswith("keyblock-import: ")
    assert expected.format(tmp=tmp_path) in problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--pairs", "10"], "10 pairs prove too little: 384 or more"),
        (["--passages", "0"], "argument --passages: "),
        (["--passage-tokens", "many"], "argument --passage-tokens: "),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["model", "--out", str(tmp_path / "out"), *arguments])
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err
