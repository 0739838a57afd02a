"""What the laboratory adds is found by name, and by nobody who does not ask for it."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from lab.families import Top
from training.declarations import FAMILIES, STATE_AGGREGATORS
from training.model.families import module_of
from training.model.ranker_module import RankerModule

ASK = """
import sys
import service.app, export.cli, training.model.families
from keyblock.selectors import SELECTORS
from training.declarations import FAMILIES
SELECTORS.create("bm25"), FAMILIES.create("cross_encoder")
assert "lab" not in sys.modules
{}
assert "lab" in sys.modules
"""


@pytest.mark.parametrize("asked", ['FAMILIES.create("ck")', "SELECTORS.names()"])
def test_it_is_imported_when_a_registry_is_asked_for_it(asked: str) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", ASK.format(asked)], check=True)


def test_every_family_has_a_module_and_a_graph() -> None:
    exported = {entry.name for entry in entry_points(group="keyblock.export.families")}
    own = {name for name in FAMILIES.names() if FAMILIES.create(name).module.startswith("lab.")}
    assert own == exported
    assert all(issubclass(module_of(FAMILIES.create(name)), RankerModule) for name in own)  # type: ignore[arg-type]
    assert all(callable(entry.load()) for entry in entry_points(group="keyblock.export.families"))
    assert STATE_AGGREGATORS.create("top") == Top(best=3)
