from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from export.graphs import export_graphs
from export.options import VariantKind, WeightPrecision
from export.trained import load_trained
from keyblock.runtime.providers import Provider
from keyblock.text.tokenizer import Tokenizer
from training.model.cross_encoder import CrossEncoder

PARTS: dict[str, Any] = {"selector": {"name": "learned"}, "aggregator": {"name": "states", "passages": 2}}


def test_every_kind_has_all_graphs_of_the_system(
    tmp_path: Path, save_run: Callable[..., Path], tiny: Callable[..., CrossEncoder], tokenizer: Tokenizer
) -> None:
    """Halved are the matrices of all; the variant is made of the encoders, and shares the aggregator."""
    run = save_run(tmp_path / "run", tiny(aggregator={"name": "cnn"}), chooser=tiny(), **PARTS)
    plain = export_graphs(load_trained(run), tmp_path / "fp32")
    halved, variant = plain.served(tmp_path / "half", WeightPrecision.FP16), plain.variant(VariantKind.INT8, tmp_path / "int8")
    names = {"model.onnx", "selector.onnx", "aggregator.onnx"}
    for graphs in (plain, halved, variant):
        assert {path.name for path in graphs.folder.iterdir()} == names
        assert graphs.fused.keys() == names - {"aggregator.onnx"}
        model = graphs.open(tokenizer, Provider.CPU, "int8" if graphs is variant else "fp32")
        assert model.selector is not None
        assert model.aggregator is not None
    for name in names:
        stored = onnx.load(str(halved.folder / name)).graph.initializer
        assert {tensor.data_type for tensor in stored if len(tensor.dims) > 1} == {TensorProto.FLOAT16}
    assert (plain.folder / "aggregator.onnx").read_bytes() == (variant.folder / "aggregator.onnx").read_bytes()
    assert variant.fused["selector.onnx"]["QAttention"] == 2
