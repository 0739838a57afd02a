"""What can be exported; damaged runs are in test_exporter."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from export import ExportError
from export.cli import main
from export.exporter import export_run
from export.options import Options
from export.trained import load_trained
from keyblock.bundle import Bundle, load_bundle
from keyblock.runtime.providers import Provider
from training.model.cross_encoder import CrossEncoder

SaveRun = Callable[..., Path]
Tiny = Callable[..., CrossEncoder]
SMALL: dict[str, Any] = {"segmenter": {"name": "cogltx", "block_tokens": 30}, "packing": {"budget": 64, "budget_range": (64, 64)}}
FEW: dict[str, Any] = {"queries": 3, "depth": 3, "provider": Provider.CPU}


def test_a_bundle_is_written_anew_with_variants(run: Path, tmp_path: Path) -> None:
    """Its weights are read back from its graph: the same graph comes out."""
    first = export_run(run, tmp_path / "first", Options(name="mine", **FEW))
    manifest = first.manifest.model_copy(
        update={"provenance": {"recipe": {"backbone": str(run / "checkpoint")}, "export": {"keyblock": "0"}}}
    )
    (tmp_path / "first" / "bundle.json").write_text(manifest.model_dump_json())
    out = tmp_path / "second"
    arguments = [tmp_path / "first", "--out", out, "--variant", "int8", "--provider", "cpu", "--queries", 2, "--depth", 2]
    assert main([str(argument) for argument in arguments]) == 0
    second = load_bundle(out).manifest
    assert (second.name, list(second.variants)) == ("mine", ["int8"])
    assert second.files["model.onnx"].bytes == first.manifest.files["model.onnx"].bytes
    before, after = (onnx.load(str(tmp_path / name / "model.onnx")).graph for name in ("first", "second"))
    assert [tensor.raw_data for tensor in before.initializer] == [tensor.raw_data for tensor in after.initializer]
    assert second.provenance["recipe"] == manifest.provenance["recipe"]
    assert second.provenance["export"] != {"keyblock": "0"}


def test_a_bundle_that_cannot_be_read_back(tmp_path: Path, plain: Bundle, save_run: SaveRun, tiny: Tiny) -> None:
    wide = save_run(tmp_path / "run", tiny(aggregator={"name": "max"}), **SMALL | {"aggregator": {"name": "states", "passages": 2}})
    export_run(wide, tmp_path / "wide", Options(**FEW))
    with pytest.raises(ExportError, match="a bundle of several graphs cannot be written anew; export the run"):
        export_run(tmp_path / "wide", tmp_path / "again", Options(**FEW))
    shutil.copytree(plain.path, tmp_path / "plain")
    with pytest.raises(ExportError, match="does not say which backbone it was trained on; export the run"):
        export_run(tmp_path / "plain", tmp_path / "again", Options(**FEW))
    manifest = tmp_path / "plain" / "bundle.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"provenance": {"recipe": "by hand"}}))
    with pytest.raises(ExportError, match="does not say which backbone"):
        export_run(tmp_path / "plain", tmp_path / "again", Options(**FEW))


@pytest.mark.parametrize(
    ("aggregator", "parts", "problem"),
    [
        (
            None,
            {"aggregator": {"name": "states", "passages": 2}},
            "aggregator is 'states', but its model has no aggregator; train it",
        ),
        ({"name": "max"}, {}, "is 'joint', but its model has an aggregator; train it again"),
    ],
)
def test_a_model_and_a_pipeline_that_do_not_belong_together(
    tmp_path: Path, save_run: SaveRun, tiny: Tiny, aggregator: dict[str, Any] | None, parts: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ExportError, match=problem):
        load_trained(save_run(tmp_path / "run", tiny(aggregator=aggregator), **SMALL | parts))
