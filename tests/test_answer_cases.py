"""The cases of tests/data/answers: what they must be, how an answer is judged, and how many the embedded bundle gets right."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from keyblock import Ranker
from keyblock.client import Client
from keyblock.results import Context, Ranking, Result, Span
from tests.support.answer_cases import FILES, Case, faults, over_http, read_cases
from tests.support.serving import Service

ROOT = Path(__file__).resolve().parent.parent
COUNTS = {"echoes": 60, "short": 40, "unanswered": 40, "cases": 40}
REACHED = {"short": 17, "unanswered": 25, "cases": 11}  # by models/default, and none of the echoes: raise with a better bundle


@pytest.fixture(scope="module")
def ranker() -> Iterator[Ranker]:
    with Ranker.open(ROOT / "models" / "default", provider="cpu") as opened:
        yield opened


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@pytest.mark.parametrize("file", FILES)
def test_the_cases_differ_and_are_as_many_as_stated(file: str) -> None:
    cases = read_cases(file)
    assert len(cases) == COUNTS[file]
    assert len({case.id for case in cases}) == len(cases)
    assert all(case.best is not None or case.spans or case.context_tokens or case.kept is not None for case in cases)
    texts = Counter(text for case in cases for text in case.documents if file != "cases")  # several cases ask of one text
    assert [text for text, count in texts.items() if count > 1] == []


def test_texts_that_decide_stand_once_in_the_right_document() -> None:
    for case in read_cases("cases"):
        right = [text for alternatives in case.alternatives for text in alternatives] + [case.context or ""] * bool(case.context)
        assert (case.context is None) == (not case.context_tokens), case.id
        for text in right:
            assert [document.count(text) for document in case.documents if text in document] == [1], (case.id, text)
            assert text in case.documents[case.best or 0], (case.id, text)
        for wrong in case.wrong:
            assert case.documents[case.best or 0].count(wrong) == 1, (case.id, wrong)
            assert not any(wrong in text or text in wrong for text in right), (case.id, wrong)


def test_an_echo_has_more_words_of_the_query_than_the_answer() -> None:
    for case in read_cases("echoes"):
        query, (echo, answer) = set(words(case.query)), (set(words(text)) for text in case.documents)
        assert len(query & echo) > len(query & answer), case.id
        assert 1 <= len(re.findall(r"[.?!](?:\s|$)", case.documents[1])) <= 12, case.id


def test_short_ones_are_short_and_long_requests_are_long() -> None:
    assert [case.id for case in read_cases("short") if len(re.findall(r"[.?!](?:\s|$)", case.documents[0])) > 2] == []
    requests = [case.query for case in read_cases("cases") if case.kind == "long request"]
    assert len(requests) >= 3
    assert all(len(words(query)) > 50 and "?" not in query for query in requests)


def result(index: int = 0, score: float = 0.5, spans: Sequence[tuple[int, int]] = (), context: str | None = None) -> Result:
    found = tuple(Span(start, end, 0.5) for start, end in spans)
    return Result(index, score, relevant_spans=found, context=context if context is None else Context(context, 1))


BLUE = {"spans": ["Two is blue."], "wrong": ["Three is green."]}
BOTH = {"spans": ["One is red.", ["Two is blue.", "Three is green."]]}
CONTEXT = {"context": "is blue", "context_tokens": [60]}


@pytest.mark.parametrize(
    ("right", "fields", "results"),
    [
        (True, {"best": 1}, [result(1, 0.6), result(0, 0.5)]),
        (False, {"best": 1}, [result(0, 0.6), result(1, 0.5)]),
        (False, {"best": 1}, [result(1, 0.5), result(0, 0.5)]),  # level
        (True, {"best": 1, "filler": 2}, [result(3, 0.6), result(1, 0.5)]),
        (True, BLUE, [result(spans=[(12, 24)])]),
        (False, BLUE, [result(spans=[(0, 11), (12, 24)])]),  # only the second best
        (False, BLUE, [result(spans=[(12, 40)])]),  # the wrong text is in it, too
        (False, BLUE, [result()]),
        (True, BOTH, [result(spans=[(25, 40), (0, 11)])]),
        (False, BOTH, [result(spans=[(25, 40), (12, 24)])]),
        (True, {"kept": True}, [result()]),
        (False, {"kept": True}, []),
        (True, {"kept": False}, []),
        (False, {"kept": False}, [result()]),
        (True, CONTEXT, [result(context="Two is blue.")]),
        (False, CONTEXT, [result(context="One is red."), result(1)]),
    ],
)
def test_how_an_answer_is_judged(right: bool, fields: dict[str, Any], results: list[Result]) -> None:
    case = Case(id="a", kind="k", query="q", documents=["One is red. Two is blue. Three is green.", "Four."], **fields)
    assert (faults(case, lambda *_, **__: Ranking(tuple(results), below_min_score=0)) == []) is right


def test_a_service_answers_as_the_ranker_does(ranker: Ranker, running: Service) -> None:
    cases = [case for file in FILES for case in read_cases(file) if case.id in ("vienna", "boiler-pressure", "hotel-london")]
    with Client(running.url) as client:
        through_http = {case.id: faults(case, over_http(client)) for case in cases}
    assert through_http == {case.id: faults(case, ranker.rank) for case in cases}
    assert [identity for identity, found in through_http.items() if not found] == ["vienna"]


@pytest.mark.parametrize("file", REACHED)
def test_the_embedded_bundle_gets_as_many_right_as_it_did(file: str, ranker: Ranker) -> None:
    wrong = {case.id: found for case in read_cases(file) if (found := faults(case, ranker.rank))}
    assert COUNTS[file] - len(wrong) >= REACHED[file], f"wrong are {wrong}"
