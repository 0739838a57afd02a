from pathlib import Path

import pytest

from export import ExportError
from export.families import export_ranker
from tests.training.models.families import Bag


def test_a_family_without_a_graph_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"models of the family bag cannot be exported; those of cross_encoder, .* can"):
        export_ranker(Bag(10, 2), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
