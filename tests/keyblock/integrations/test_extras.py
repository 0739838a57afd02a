"""An import that fails names the extra that brings it; the frameworks themselves are tests/clients' matter."""

import importlib
import subprocess
import sys

import pytest

from keyblock.integrations.extras import extra


def test_the_extra_is_named_and_other_errors_are_as_they_are() -> None:
    said = r"extra langchain: pip install 'keyblock\[langchain\]' \(No module named 'no_such_thing'\)"
    with pytest.raises(ImportError, match=said), extra("langchain"):
        importlib.import_module("no_such_thing")
    with pytest.raises(ZeroDivisionError), extra("langchain"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("integration", "package"), [("haystack", "haystack"), ("langchain", "langchain_core"), ("llama_index", "httpx")]
)
def test_each_integration_names_its_extra(integration: str, package: str) -> None:
    """Where the framework is not to be had, and where httpx is not."""
    code = f"""import sys
sys.modules[{package!r}] = None
try:
    import keyblock.integrations.{integration}
except ImportError as error:
    print(error)"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    name = integration.replace("_", "-")
    assert f"this needs the extra {name}: pip install 'keyblock[{name}]'" in said
