"""Requests as bytes, and uploads in batches: what JSON can say arrives as it was."""

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.client import uploads
from keyblock.client.bodies import as_documents, as_json, rerank_body
from keyblock.client.uploads import Upload
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


@given(st.lists(st.integers(0, 300), max_size=30))
def test_batches_hold_every_document_once_in_order(sizes: list[int]) -> None:
    upload, most = Upload(), 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploads, "BATCH_BYTES", most)
        made = [upload.add({"id": number, "text": "x" * size}) for number, size in enumerate(sizes)] + [upload.rest()]
    batches = [batch for batch in made if batch is not None]
    lines = [json.loads(line) for batch in batches for line in batch.content.splitlines()]
    assert [(line["id"], len(line["text"])) for line in lines] == list(enumerate(sizes))
    assert all(len(batch.content) <= most or batch.count == 1 for batch in batches)
    assert [batch.first for batch in batches] == [sum(one.count for one in batches[:number]) for number in range(len(batches))]
    assert upload.rest() is None
