import pytest

from export import cli, import_cli
from export.options import VariantKind
from keyblock.runtime.providers import Provider


@pytest.mark.parametrize(
    ("kind", "provider"), [("int8", Provider.CPU), ("int8-static", Provider.OPENVINO), ("fp16", Provider.CUDA)]
)
def test_a_variant_says_where_it_runs(kind: str, provider: Provider) -> None:
    assert VariantKind(kind).provider is provider


def test_an_export_halves_the_weights_and_an_import_keeps_them() -> None:
    for parser, given, precision in ((cli.parser(), "run", "fp16-weights"), (import_cli.parser(), "model", "fp32")):
        options = parser.parse_args([given, "--out", "bundle"])
        assert options.precision == precision
        assert (options.provider, options.variant, options.overwrite) == (Provider.AUTO, [], False)
