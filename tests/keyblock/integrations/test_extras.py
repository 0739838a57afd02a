"""An import that fails names the extra that brings it; the frameworks themselves are tests/clients' matter."""

import importlib
import subprocess
import sys

import pytest

from keyblock.integrations.extras import extra


def test_the_extra_is_named() -> None:
    said = r"extra langchain: pip install 'keyblock\[langchain\]' \(No module named 'no_such_thing'\)"
    with pytest.raises(ImportError, match=said), extra("langchain"):
        importlib.import_module("no_such_thing")


def test_other_errors_are_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError), extra("langchain"):
        raise ZeroDivisionError


@pytest.mark.parametrize("integration", ["haystack", "langchain", "llama_index"])
@pytest.mark.parametrize("its_own", [True, False])
def test_each_integration_names_its_extra(integration: str, its_own: bool) -> None:
    """Where the framework is not to be had, and where httpx is not."""
    package = {"langchain": "langchain_core"}.get(integration, integration) if its_own else "httpx"
    code = f"""import sys
sys.modules[{package!r}] = None
try:
    import keyblock.integrations.{integration}
except ImportError as error:
    print(error)"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    name = integration.replace("_", "-")
    assert f"this needs the extra {name}: pip install 'keyblock[{name}]'" in said
