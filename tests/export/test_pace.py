from pathlib import Path

from export.importing import measured_pace
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider

DEFAULT = Path(__file__).parents[2] / "models" / "default"


def test_the_pace_is_that_of_one_length_on_one_provider() -> None:
    model = GraphModel.open(load_bundle(DEFAULT), Provider.CPU, 1)
    short, long = (measured_pace(model, length) for length in (32, 256))
    assert short["sequences_per_second"] > long["sequences_per_second"] > 0
    assert (long["tokens"], long["provider"], long["precision"], long["threads"]) == (256, "cpu", "fp32", 1)
