"""Answers of upstreams: one finite score for each passage, or one line that says what is wrong."""

import json
from contextlib import suppress

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.fusion import sigmoid
from service.settings import UpstreamKind, UpstreamScores
from service.upstream.wire import SHAPES, NonsenseError, logits, read, written

JINA, TEI, COHERE = (SHAPES[kind] for kind in (UpstreamKind.JINA, UpstreamKind.TEI, UpstreamKind.COHERE))


def results(*pairs: tuple[object, object]) -> bytes:
    return json.dumps({"results": [{"index": index, "relevance_score": score} for index, score in pairs]}).encode()


def test_bodies_by_hand() -> None:
    assert orjson.loads(written(COHERE, "m", "q", ["a", "b"])) == {"model": "m", "query": "q", "documents": ["a", "b"]}
    assert orjson.loads(written(JINA, "", "q", ["a"])) == {"query": "q", "documents": ["a"], "return_documents": False}
    assert orjson.loads(written(TEI, "", "q", ["a"])) == {"query": "q", "texts": ["a"], "raw_scores": True, "truncate": True}


def test_an_instruction_is_in_the_field_of_the_api_or_before_the_query() -> None:
    jina, tei = (orjson.loads(written(shape, "", "q", ["a"], "Find contracts.")) for shape in (JINA, TEI))
    assert (jina["instruction"], jina["query"], tei["query"]) == ("Find contracts.", "q", "Find contracts.\nq")


def test_scores_come_back_in_the_order_of_the_passages() -> None:
    assert read(JINA, results((1, 0.5), (0, 0.9), (2, 0)), 3).tolist() == pytest.approx([np.log(9), 0.0, -30.0])
    assert read(TEI, b'[{"index": 1, "score": 3.5}, {"index": 0, "score": -7}]', 2).tolist() == [-7.0, 3.5]
    assert read(COHERE, results((0, 7.5)), 1, UpstreamScores.LOGIT).tolist() == [7.5]
    assert read(TEI, b'[{"index": 0, "score": 0.5}]', 1, UpstreamScores.PROBABILITY).tolist() == [0.0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<html><body>502 Bad Gateway", "no JSON: '<html><body>502 Bad Gateway'"),
        (b'{"results": [{"index": 0, "relevance_score": NaN}]}', "no JSON"),
        (b"", "no JSON"),
        (b"[" * 5000, "no JSON"),
        (b'{"error": "busy"}', 'no list of results: {"error":"busy"}'),
        (b"null", "no list of results: null"),
        (results((0, 0.5)), "1 results for 2 passages"),
        (results((0, 0.5), (1, 0.5), (2, 0.5)), "3 results for 2 passages"),
        (results((0, 0.5), (0, 0.6)), "two results with index 0"),
        (results((0, 0.5), (2, 0.6)), "a result with index 2, where 2 passages were sent"),
        (results((0, 0.5), (True, 0.6)), "a result with index true"),
        (results((0, 0.5), (-1, 0.6)), "a result with index -1"),
        (results((0, 0.5), (1, None)), "null as the relevance_score of passage 1"),
        (results((0, 0.5), (1, "x" * 500)), '"xxxxxxxx'),
        (results((0, 0.5), (1, True)), "true as the relevance_score of passage 1"),
        (b'{"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": 1e39}]}', "1e+39 as the"),
        (b'{"results": [5, 6]}', "a result with index null"),
        (results((0, 0.5), (1, 7.25)), "the score 7.25, no probability; if its scores are logits, set upstream_scores to logit"),
    ],
)
def test_nonsense_is_named_in_one_short_line(content: bytes, problem: str) -> None:
    with pytest.raises(NonsenseError) as raised:
        read(JINA, content, 2)
    assert problem in str(raised.value)
    assert len(str(raised.value)) < 150
    assert "\n" not in str(raised.value)


@given(st.lists(st.floats(0, 1), min_size=1))
def test_logits_give_the_probabilities_back_and_keep_their_order(probabilities: list[float]) -> None:
    found = logits(np.asarray(probabilities))
    assert np.isfinite(found).all()
    assert sigmoid(found.astype(np.float64)) == pytest.approx(probabilities, abs=1e-6)
    order = np.argsort(probabilities, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)
FIELDS = st.sampled_from(["index", "score", "relevance_score"])
LISTS = st.lists(st.dictionaries(FIELDS, st.integers(-1, 2) | st.floats(0, 1) | VALUES), max_size=3)


@given(st.binary(max_size=200) | (LISTS | LISTS.map(lambda one: {"results": one}) | VALUES).map(lambda v: json.dumps(v).encode()))
def test_whatever_comes_is_scores_or_nonsense(content: bytes) -> None:
    for shape in SHAPES.values():
        with suppress(NonsenseError):
            assert np.isfinite(read(shape, content, 2)).all()
