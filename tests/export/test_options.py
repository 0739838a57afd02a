import subprocess
import sys

import pytest

from export import cli, import_cli
from export.options import Options, VariantKind
from keyblock.runtime.providers import Provider


@pytest.mark.parametrize(
    ("kind", "provider"), [("int8", Provider.CPU), ("int8-static", Provider.OPENVINO), ("fp16", Provider.CUDA)]
)
def test_a_variant_says_where_it_runs(kind: str, provider: Provider) -> None:
    assert VariantKind(kind).provider is provider


def test_every_kind_of_variant_runs_somewhere() -> None:
    assert {kind.provider for kind in VariantKind} == {Provider.CPU, Provider.OPENVINO, Provider.CUDA}


def test_without_options_a_bundle_has_no_variants_and_overwrites_nothing() -> None:
    options = Options()
    assert (options.variants, options.collections, options.overwrite, options.name) == ((), (), False, "")


def test_options_are_read_without_pytorch() -> None:
    code = "import sys; import export.options; print({'torch', 'transformers', 'onnx', 'onnxruntime'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_an_export_halves_the_weights_and_an_import_keeps_them() -> None:
    for parser, given, precision in ((cli.parser(), "run", "fp16-weights"), (import_cli.parser(), "model", "fp32")):
        options = parser.parse_args([given, "--out", "bundle"])
        assert options.precision == precision
        assert (options.provider, options.variant, options.overwrite) == (Provider.AUTO, [], False)
