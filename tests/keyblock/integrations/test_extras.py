"""An import that fails names the extra that brings it."""

import importlib

import pytest

from keyblock.integrations.extras import extra


def test_the_extra_is_named() -> None:
    said = r"extra langchain: pip install 'keyblock\[langchain\]' \(No module named 'no_such_thing'\)"
    with pytest.raises(ImportError, match=said), extra("langchain"):
        importlib.import_module("no_such_thing")


def test_other_errors_are_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError), extra("langchain"):
        raise ZeroDivisionError
