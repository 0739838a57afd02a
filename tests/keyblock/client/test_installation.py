"""What `keyblock[client]` brings into an environment: HTTP, and little else."""

import subprocess
import sys
import tomllib
from importlib.metadata import requires

from packaging.requirements import Requirement

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROUGHT = {
    *("httpx", "httpcore", "h11", "anyio", "certifi", "idna"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions"),
}
CORE = ("numpy", "tokenizers", "Stemmer", "onnxruntime", "keyblock.text")


def brought(requirements: list[str]) -> set[str]:
    """The names of these requirements, and of what they require, as installed here."""
    names: set[str] = set()
    waiting = [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop()
        name = one.name.lower().replace("_", "-")
        if name not in names and (one.marker is None or one.marker.evaluate({"extra": ""})):
            names.add(name)
            waiting += [Requirement(text) for text in requires(one.name) or ()]
    return names


def test_the_extra_brings_http_and_the_shapes() -> None:
    assert brought(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["client"]) == BROUGHT


def test_the_client_imports_nothing_of_the_core() -> None:
    code = f"import sys, keyblock.client; print([name for name in {CORE} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
