"""Without the framework: tests/clients/test_keyblock_langchain.py has it."""

import pytest

from tests.keyblock.integrations.bare import said_without


@pytest.mark.parametrize("package", ["langchain_core", "httpx"])
def test_without_the_extra_it_is_named(package: str) -> None:
    assert "this needs the extra langchain: pip install 'keyblock[langchain]'" in said_without(package, "langchain")
