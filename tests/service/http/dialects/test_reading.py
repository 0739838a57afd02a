"""The candidates are checked by hand, for speed: against the declared model here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from starlette.testclient import TestClient

from keyblock.wire import Document, Options, RerankRequest
from service.errors import RequestError
from service.http.dialects.common import read_documents, read_options, read_query, with_text_of
from service.settings import Limits

LIMITS = Limits(max_documents=5, max_document_chars=10, max_query_chars=8)
SCALARS = st.sampled_from([None, True, 0, 7, 1.5, "", "text", [], {}])
OBJECTS = st.fixed_dictionaries({}, optional={"text": SCALARS, "title": SCALARS, "id": SCALARS, "other": SCALARS})
DECLARED: TypeAdapter[Any] = TypeAdapter(RerankRequest.model_fields["documents"].annotation)


@given(st.lists(SCALARS | OBJECTS, max_size=3) | SCALARS)
def test_accepts_what_the_model_declares(documents: Any) -> None:
    try:
        declared = DECLARED.validate_python(documents, strict=True)
    except ValidationError:
        declared = None
    if declared is None:
        with pytest.raises(RequestError):
            read_documents({"documents": documents}, "documents", LIMITS, [], by_id=True)
        return
    read = read_documents({"documents": documents}, "documents", LIMITS, [], by_id=True)
    objects = [d if isinstance(d, Document) else Document(text=d) for d in ([declared] if isinstance(declared, str) else declared)]
    assert read.texts == [d.text or "" for d in objects]
    stored = {number: str(d.id) for number, d in enumerate(objects) if d.text is None and d.id is not None}
    assert read.titles == ["" if number in stored else d.title or "" for number, d in enumerate(objects)]
    assert read.by_id.ids == stored
    assert read.ids == [d.id for d in objects]


@pytest.mark.parametrize(
    ("documents", "field", "problem"),
    [
        (None, "documents", "is missing"),
        (7, "documents", "must be a list, not 7"),
        ({"text": "a"}, "documents", "must be a list, not an object"),
        (["a", 7], "documents[1]", "not 7"),
        (["a", ["b"]], "documents[1]", "not a list"),
        ([{"title": "a"}], "documents[0].text", "is missing or null"),
        ([{"text": 5}], "documents[0].text", "must be a string, not 5"),
        ([{"text": "a", "title": 5}], "documents[0].title", "must be a string, not 5"),
        ([{"text": "a", "id": True}], "documents[0].id", "must be a string or an integer, not true"),
        ([{"text": "a", "id": 1.5}], "documents[0].id", "must be a string or an integer, not 1.5"),
        (["a"] * 6, "documents", "has 6 elements, limit 5"),
        (["a", "b" * 11], "documents[1]", "has 11 characters, limit 10"),
        (["a", {"text": "b", **{str(n): 0 for n in range(256)}}], "documents[1]", "has 257 members, limit 256"),
        ([{"text": "b" * 11}], "documents[0].text", "has 11 characters, limit 10"),
        ([{"text": "b", "title": "c" * 11}], "documents[0].title", "has 11 characters, limit 10"),
    ],
)
def test_refusals_name_the_element(documents: Any, field: str, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_documents({"documents": documents}, "documents", LIMITS, [])
    assert caught.value.status == 422
    assert caught.value.message.startswith(f"{field}: ")
    assert problem in caught.value.message


@pytest.mark.parametrize("query", [None, "", "  \n\t ", 7, ["a"], {}])
def test_without_a_query_there_is_no_ranking(query: object) -> None:
    with pytest.raises(RequestError, match=r"^query: (is missing|is empty|must be a string, not )"):
        read_query(query, LIMITS, [])


def test_long_query_is_cut_with_a_warning() -> None:
    warnings: list[str] = []
    assert read_query("abcdefghij", LIMITS, warnings) == "abcdefgh"
    assert warnings == ["query: cut from 10 to 8 characters"]


@given(st.integers() | st.floats(allow_nan=False))
def test_any_number_of_tokens_is_accepted(number: float) -> None:
    assert read_options(Options, {"max_tokens_per_doc": number}, set()).max_tokens_per_doc == pytest.approx(float(number))


def test_an_id_may_do_for_a_text_where_there_is_a_store() -> None:
    warnings: list[str] = []
    given = ["a", {"id": 7}, {"id": "x", "text": "b"}, {"id": "y", "text": None, "title": "T", "url": None}]
    read = read_documents({"documents": given}, "documents", LIMITS, warnings, by_id=True)
    assert (read.texts, read.titles, read.ids) == (["a", "", "b", ""], [""] * 4, [None, 7, "x", "y"])
    assert read.by_id.ids == {1: "7", 3: "y"}
    assert warnings == ["documents: fields not used: title"]
    with pytest.raises(RequestError, match=r"texts\[1\].text: is missing or null"):
        read_documents({"texts": given}, "texts", LIMITS, [])


SONG: dict[str, Any] = {"id": 7, "title": "River", "text": "I wish", "author": "Joni", "year": 1971, "live": True, "score": None}
SONG |= {"tags": ["folk", None, 1971, {}, ["x"]], "meta": {"body": "skating away"}, "label.name": "Reprise"}


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (["text"], ("I wish", None)),
        (["title", "text"], ("I wish", "River")),
        (["author", "text", "title"], ("Joni\nI wish", "River")),
        (["title"], ("River", None)),
        (["author", "publisher"], ("Joni", None)),
        (["publisher", "score"], ("I wish", "River")),
        (["year", "live"], ("1971\ntrue", None)),
        (["tags"], ("folk\n1971", None)),
        (["title", "meta.body"], ("skating away", "River")),
        (["meta.body.text", "meta", "label.name"], ("Reprise", None)),
    ],
)
def test_the_text_is_made_of_the_fields(fields: list[str], read: tuple[str, str | None]) -> None:
    found = with_text_of(SONG, {field: field.split(".") for field in fields}, {})
    assert (found["text"], found["title"]) == read
    assert found["id"] == 7
    assert found.keys() & {"author", "year", "tags", "label.name"} == {"author", "year", "tags", "label.name"} - {*fields}
    assert ("meta" in found) == ("meta.body" not in fields)


def test_over_http(client: TestClient) -> None:
    documents = [
        {"body": "the river flooded the bridge", "seen": "often"},
        {"text": "a city", "body": "a hill", "seen": "once", "url": ""},
        "a stone",
        {"text": "b"},
    ]
    request = {"query": "river bridge", "documents": documents, "rank_fields": ["body"], "return_documents": True}
    answer = client.post("/v1/rerank", json=request).json()
    texts = {result["index"]: result["document"]["text"] for result in answer["results"]}
    assert texts == {0: "the river flooded the bridge", 1: "a hill", 2: "a stone", 3: "b"}
    assert answer["meta"]["warnings"] == ["documents: fields not used: seen, url"]
    answer = client.post("/v1/rerank", json=request | {"rank_fields": ["nothing"]}).json()
    assert answer["results"][-1] == {"index": 0, "relevance_score": 0.0, "document": {"text": ""}, "scored_by": "order"}
    assert answer["meta"]["warnings"][1:] == [
        "rank_fields: no document has a text, a number or a list of them in: nothing",
        "documents without text to score, ranked last: 0",
    ]
    refused = client.post("/v1/rerank", json=request | {"rank_fields": ["nothing"] * 65}).json()
    assert refused["message"].startswith("rank_fields: ")
