"""Without the framework: tests/clients/test_keyblock_llama_index.py has it."""

import pytest

from tests.keyblock.integrations.bare import said_without


@pytest.mark.parametrize("package", ["llama_index", "httpx"])
def test_without_the_extra_it_is_named(package: str) -> None:
    assert "this needs the extra llama-index: pip install 'keyblock[llama-index]'" in said_without(package, "llama_index")
