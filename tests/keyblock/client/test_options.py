"""Options: those of the wire, and those of a client, checked."""

import sys
from typing import Any

import pytest

from keyblock.client import (
    RerankOptions,
)
from keyblock.client.options import OWN, Configuration
from keyblock.wire import NOT_HONOURED, Options
from tests.keyblock.client.conftest import Connect


def test_options_are_those_of_the_wire() -> None:
    elsewhere = {*NOT_HONOURED, "rank_fields"}  # of Cohere's clients, where documents are rows of a table
    assert set(RerankOptions.__annotations__) - OWN == set(Options.model_fields) - elsewhere


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "localhost:8000"}, "url must be like http://127.0.0.1:8000, not 'localhost:8000'"),
        ({"url": "http://x?y=1"}, "url must be like"),
        ({"compression": "br"}, "compression must be one of gzip, zstd, or None, not 'br'"),
        ({"timeout": -1}, "timeout must be at least 0.0, not -1"),
        ({"timeout": float("nan")}, "timeout must be at least 0.0, not nan"),
        ({"max_connections": 0}, "max_connections must be at least 1, not 0"),
        ({"api_key": "kb_secret\n"}, "^api_key has a character that no header can carry, such as the end of a line$"),
        ({"api_key": "schlüssel"}, "^api_key has a character"),
        ({"headers": {"x-team": "a\r\nb"}}, "^x-team has a character"),
    ],
)
def test_a_client_that_cannot_be_made(connect: Connect, options: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        connect(**options)


def test_zstd_needs_a_package(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)  # as where it is not installed
    with pytest.raises(
        ValueError, match=r"^compression 'zstd' needs the package zstandard \(pip install zstandard\); 'gzip' needs"
    ):
        connect(compression="zstd")
    connect(compression="gzip")


@pytest.mark.parametrize("least", [{"timeout": 0}, {"margin": 0}, {"retries": 0}, {"max_connections": 1}])
def test_the_least_is_allowed(least: Any) -> None:
    (name,) = least
    assert getattr(Configuration(url="http://there", **least), name) == least[name]


def test_the_url_is_shown_without_a_password() -> None:
    assert Configuration(url="http://me:secret@there:8000/under").where == "http://there:8000/under"
