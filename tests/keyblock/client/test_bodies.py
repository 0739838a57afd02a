"""Requests as bytes: what JSON can say arrives as it was, and what it cannot is refused."""

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.client.bodies import as_documents, as_json, compressed, rerank_body
from keyblock.wire import Document, DocumentLine

TEXT = st.text(st.characters(codec=None), max_size=40)


@given(st.dictionaries(TEXT, TEXT | st.integers() | st.booleans() | st.none() | st.lists(TEXT)))
def test_json_keeps_everything_but_lone_surrogates(value: dict[str, Any]) -> None:
    def whole(inner: Any) -> Any:
        if isinstance(inner, str):
            return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in inner)
        if isinstance(inner, list):
            return [whole(one) for one in inner]
        return {whole(key): whole(one) for key, one in inner.items()} if isinstance(inner, dict) else inner

    assert json.loads(as_json(value)) == whole(value)


@given(TEXT, st.lists(TEXT, max_size=4))
def test_a_body_is_one_object_whatever_the_options(query: str, texts: list[str]) -> None:
    body = rerank_body(query, as_documents(texts))
    for options in ({}, {"top_n": 3}, {"deadline_ms": 12.5, "raw_scores": None}):
        read = json.loads(body(options))
        assert list(read) == ["query", *options, "documents"]
        assert [len(text) for text in read["documents"]] == [len(text) for text in texts]


def test_documents_are_sent_as_they_were_given() -> None:
    given = [
        "a",
        {"text": "b"},
        MappingProxyType({"id": 3, "other": [1]}),
        Document(text="d", id="x"),
        DocumentLine(id=1, text="e"),
    ]
    read = json.loads(rerank_body("q", as_documents(given))({}))["documents"]  # type: ignore[arg-type]
    assert read == ["a", "b", {"id": 3, "other": [1]}, {"text": "d", "id": "x"}, {"id": 1, "text": "e"}]


@pytest.mark.parametrize("wrong", [{"id": float("nan"), "text": "x"}, {"text": "x", "id": b"y"}])
def test_what_json_cannot_say_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        rerank_body("q", as_documents([wrong]))


def test_small_bodies_are_left_alone() -> None:
    assert compressed(b"x" * 99, "gzip", 100) == (b"x" * 99, {})
    content, headers = compressed(b"x" * 1000, "zstd", 1000)
    assert (len(content) < 100, headers) == (True, {"content-encoding": "zstd"})
    assert compressed(content, None, 0) == (content, {})
