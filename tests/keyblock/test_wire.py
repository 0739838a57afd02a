"""The shapes on the wire: what a request may say, checked where it is declared."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from keyblock.wire import NOT_HONOURED, Document, DocumentLine, Options, RerankAnswer, RerankRequest, Result


def test_a_document_has_a_text_or_an_id() -> None:
    assert Document(text="").text == ""
    assert Document(id=7).id == 7
    with pytest.raises(ValidationError, match="a document needs a text, or the id of a stored one"):
        Document(title="Danube")


@pytest.mark.parametrize(
    "wrong",
    [{"top_n": -1}, {"top_n": 1.5}, {"top_n": "3"}, {"deadline_ms": -1}, {"priority": 1000}, {"return_blocks": 1}, {"query": ""}],
    ids=str,
)
def test_wrong_options_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RerankRequest.model_validate({"query": "q", "documents": ["d"], **wrong})


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert Options.model_validate({"top_n": 5.0, "priority": 1.0}).top_n == 5


def test_null_is_not_given_and_unknown_options_are_kept_to_be_named() -> None:
    options = Options.model_validate(dict.fromkeys(Options.model_fields) | {"overlap": 3})
    assert options.model_extra == {"overlap": 3}
    assert {getattr(options, name) for name in Options.model_fields} == {None}


def test_what_is_not_honoured_is_marked_in_its_declaration() -> None:
    for name in NOT_HONOURED:
        assert "not honoured" in str(Options.model_fields[name].description)
    assert "deadline_ms" not in NOT_HONOURED


@pytest.mark.parametrize("seconds", [0, -1, 1e12])
def test_a_line_expires_in_the_future(seconds: float) -> None:
    assert DocumentLine(id="a", text="", expires_in=1).expires_in == 1
    with pytest.raises(ValidationError):
        DocumentLine(id="a", text="", expires_in=seconds)


def test_an_answer_leaves_out_unrequested_fields_and_may_have_unknown_ones() -> None:
    result = TypeAdapter(Result).validate_python({"index": 0, "relevance_score": 0.5, "new": 1})
    assert result == {"index": 0, "relevance_score": 0.5}
    with pytest.raises(ValidationError):
        TypeAdapter(RerankAnswer).validate_python({"results": [result]})


def test_bounds_of_whole_numbers_are_in_the_schema() -> None:
    properties = RerankRequest.model_json_schema()["properties"]
    schemas = [properties[name]["anyOf"][0] for name in ("priority", "top_n", "max_context_tokens")]
    bounds = {"minimum": 0, "maximum": 999}, {"minimum": 0}, {"minimum": 1}
    assert schemas == [{"type": "integer", **each} for each in bounds]
