"""What tests need of the compiled part."""

from typing import Any

import pytest

from keyblock import native
from tests.support.programs import need


def need_compiled() -> Any:
    """`keyblock_native`; without it a test is skipped where no compiler could build it, and fails elsewhere."""
    if native.core is None:
        need("c++", "g++")
        pytest.fail("keyblock_native is not installed in this version, and a compiler is here: make env builds it")
    return native.core
