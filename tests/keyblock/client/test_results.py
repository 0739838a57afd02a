"""Stored documents: the wire's fields under the wire's names."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from keyblock import wire
from keyblock.client import StoredDocument, StoreReport
from keyblock.client.results import read_stored


def names(of: Any) -> set[str]:
    return {field.name for field in fields(of)}


def test_the_wires_names_are_ours() -> None:
    assert names(StoredDocument) == wire.StoredText.__annotations__.keys()
    assert names(StoreReport) == wire.StoredAnswer.__annotations__.keys()


def test_when_a_document_is_forgotten() -> None:
    stored = read_stored({"id": "a", "text": "t", "blocks": 1, "tokens": 2, "expires": 1.5})
    assert stored.expires == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert "'t'" not in repr(stored)
