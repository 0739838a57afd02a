"""What options may hold, at every size of a body: checked before they are validated."""

import time
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from keyblock.fusion import MOST_PARAMETERS
from keyblock.wire import Options
from service.errors import RequestError
from service.http.bodies import parsing
from service.http.bodies.parsing import MOST_OPTION_CHARACTERS, check_options, parse, parse_line
from service.http.bodies.piecewise import MOST_OPTION_VALUES
from service.http.dialects import NATIVE
from service.settings import Limits

LIMITS = Limits(max_documents=8)
MOST = MOST_OPTION_VALUES + LIMITS.max_documents
ASKED: dict[str, Any] = {"query": "river", "documents": ["the river"]}
TOO_MUCH = {
    "first_stage_scores": [""] * 690_000,
    "fusion": {"name": "mapfuse", **{str(n): 0 for n in range(100_000)}},
    "rank_fields": ["x"] * MOST,
    "relevant_spans": {"mode": "enabled", "more": [[0] * 100] * MOST},
    "an option of another service": "x" * (MOST_OPTION_CHARACTERS + 1),
    "nested": [[[[0] * 10] * 10] * 20] * 10,
}


@pytest.mark.parametrize("piecewise", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused_however_the_body_is_read(monkeypatch: pytest.MonkeyPatch, name: str, piecewise: bool) -> None:
    monkeypatch.setattr(parsing, "PIECEWISE_FROM", 0 if piecewise else 1 << 40)
    monkeypatch.setattr(parsing, "MOST_VALUES", 1 << 40)
    body = bytearray(orjson.dumps(ASKED | {"before": 1, name: TOO_MUCH[name]}))
    with pytest.raises(RequestError, match=f"^{name}: ") as caught:
        parse(body, LIMITS)
    assert (caught.value.status, len(caught.value.message) < 200) == (422, True)
    line = bytearray(orjson.dumps({"id": "a", "text": "river", name: TOO_MUCH[name]}))
    with pytest.raises(RequestError, match=f"^{name}: "):
        parse_line(line, LIMITS)


def test_the_work_is_bounded_and_texts_are_not_walked() -> None:
    huge = {"documents": ["x"] * 2_000_000, "text": "x" * 10_000_000}
    began = time.process_time()
    check_options(huge, huge.keys(), 8)
    with pytest.raises(RequestError):
        check_options({"x": huge["documents"]}, (), 8)
    assert time.process_time() - began < 0.1


def test_the_limit_itself_is_let_through() -> None:
    check_options({"x": [0] * (MOST - 2)}, (), LIMITS.max_documents)
    with pytest.raises(RequestError):
        check_options({"x": [0] * (MOST - 1)}, (), LIMITS.max_documents)
    with pytest.raises(RequestError):
        check_options({"x": [0] * (MOST // 2), "y": [0] * (MOST // 2)}, (), LIMITS.max_documents)
    with pytest.raises(RequestError, match=r"^x{40}: the options hold more"):
        check_options({"x" * (MOST_OPTION_CHARACTERS + 1): 0}, (), LIMITS.max_documents)
    assert parse(bytearray(orjson.dumps(ASKED | {"first_stage_scores": [0.5] * 8})), LIMITS)["first_stage_scores"] == [0.5] * 8


@pytest.mark.parametrize("option", ["first_stage_scores", "rank_fields"])
def test_validation_ends_with_the_first_error(option: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Options.model_validate({option: [None] * 50})
    assert caught.value.error_count() == 1


def test_a_fusion_has_few_parameters() -> None:
    fusion = {"name": "mapfuse", **{str(n): 0 for n in range(MOST_PARAMETERS)}}
    with pytest.raises(RequestError, match=r"^fusion: has 17 parameters, and no fusion has more than 16"):
        NATIVE.read(ASKED | {"first_stage_scores": [1.0], "fusion": fusion}, LIMITS)
