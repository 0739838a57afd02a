"""What goes to an upstream, and its answers: a finite score for each passage, or one line that says what is wrong."""

import json
from contextlib import suppress

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.bundle import load_bundle
from keyblock.fusion import sigmoid
from service.settings import DEFAULT_BUNDLE, Settings, UpstreamKind
from service.upstream.passages import in_front_of_upstream, passage_text
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


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<html><body>502 Bad Gateway", "no JSON: '<html><body>502 Bad Gateway'"),
        (b'{"results": [{"index": 0, "relevance_score": NaN}]}', "no JSON"),
        (b"", "no JSON"),
        (b"[" * 5000, "no JSON"),
        (b'{"error": "busy"}', 'no list of results: {"error":"busy"}'),
        (results((0, 0.5)), "1 results for 2 passages"),
        (results((0, 0.5), (0, 0.6)), "two results with index 0"),
        (results((0, 0.5), (2, 0.6)), "a result with index 2, where 2 passages were sent"),
        (results((0, 0.5), (True, 0.6)), "a result with index true"),
        (results((0, 0.5), (1, None)), "null as the relevance_score of passage 1"),
        (results((0, 0.5), (1, "x" * 500)), '"xxxxxxxx'),
        (results((0, 0.5), (1, True)), "true as the relevance_score of passage 1"),
        (b'{"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": 1e39}]}', "1e+39 as the"),
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


def test_passages_fit_their_tokens_and_hold_the_answer_whole() -> None:
    settings = Settings(upstream="http://127.0.0.1:1/rerank", upstream_model="m", upstream_passages=2, upstream_passage_tokens=128)
    bundle = in_front_of_upstream(load_bundle(DEFAULT_BUNDLE), settings)
    assert bundle.manifest.name == "m"
    answer = "The Danube flows through Vienna and Budapest."
    text = "Nothing of interest was said for a while. " * 60 + answer + " Then they went home." * 60
    document, query = bundle.pipeline.prepare_document(text), bundle.pipeline.prepare_query("the Danube in Vienna")
    selection = bundle.pipeline.select(query, document)
    assert len(selection.sequences) == len(selection.taken) == 2
    assert all(len(packed.ids) <= 128 for packed in selection.sequences)
    best = selection.taken[0]
    passage = text[document.starts[best] : document.ends[best]]
    assert answer in passage
    assert len(passage) > 4 * len(answer)


def test_passages_grow_to_whole_neighbours_and_share_nothing() -> None:
    """As those of an import: a short document is one passage, and each passage is sentences from their first to their last word."""
    settings = Settings(upstream="http://127.0.0.1:1/rerank", upstream_passages=3, upstream_passage_tokens=256)
    pipeline = in_front_of_upstream(load_bundle(DEFAULT_BUNDLE), settings).pipeline
    query = pipeline.prepare_query("the Danube in Vienna")
    sentences = [f"Sentence number {n} tells of {'the Danube' if n % 40 == 3 else 'nothing at all'} in a town." for n in range(200)]

    def passages(text: str) -> list[str]:
        document = pipeline.prepare_document(text)
        reach = pipeline.select(query, document).reach
        return [text[document.starts[first] : document.ends[end - 1]] for first, end in reach.tolist()]

    assert passages(" ".join(sentences[:10])) == [" ".join(sentences[:10])]
    found = passages(" ".join(sentences))
    assert len(found) == 3
    held = [[one for one in sentences if one in passage] for passage in found]
    assert all(" ".join(whole) == passage.strip() and len(whole) > 10 for whole, passage in zip(held, found, strict=True))
    assert len(set().union(*held)) == sum(map(len, held))


def test_a_passage_stands_behind_its_title() -> None:
    assert passage_text("one two three", "", 4, 7) == "two"
    assert passage_text("one two three", "Title", 4, 7) == "Title\ntwo"
    assert len(passage_text("x", "t" * 10_000, 0, 1)) == 202
    assert passage_text("x" * 1_000_000, "", 0, 1_000_000, 64) == "x" * 1024
