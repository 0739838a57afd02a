"""Without the framework: tests/clients/test_keyblock_haystack.py has it."""

import pytest

from tests.keyblock.integrations.bare import said_without


@pytest.mark.parametrize("package", ["haystack", "httpx"])
def test_without_the_extra_it_is_named(package: str) -> None:
    assert "this needs the extra haystack: pip install 'keyblock[haystack]'" in said_without(package, "haystack")
