"""What goes to an upstream, what becomes of its answers, and when it is asked again."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulation.machine import SimulatedMachine
from keyblock.bundle import load_bundle
from keyblock.fusion import sigmoid
from service.settings import DEFAULT_BUNDLE, Settings, UpstreamKind
from service.telemetry.metrics import Metrics
from service.upstream.client import AWAY_AFTER, AWAY_SECONDS, Upstream, UpstreamError
from service.upstream.passages import in_front_of_upstream, passage_text
from service.upstream.wire import SHAPES, NonsenseError, logits, read, written
from tests.service.upstream.answers import Behaviour, Network, says

T = TypeVar("T")
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
        (b"[" * 300 + b"]" * 300, "no list of results: a list of too many levels"),
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


OK = says(200, results((0, 0.5)))
BUSY_FOR_LONG = says(429, retry_after="3600")
Work = Callable[[Upstream], Coroutine[Any, Any, T]]


def simulated(network: Network, work: Work[T], metrics: Metrics | None = None, **options: Any) -> T:
    """The outcome of the work with the client of an upstream, where no time passes but by waiting."""
    settings = Settings(upstream="http://upstream/rerank", **{"upstream_kind": "jina", **options})
    machine = SimulatedMachine(Random(1))
    machine.carrier = network

    async def run() -> T:
        return await work(Upstream(settings, (metrics or Metrics()).of("upstream")))

    with machine.standing_in():
        task = machine.loop.create_task(run())
        while machine.loop.step():
            pass
    return task.result()


async def said(upstream: Upstream) -> str:
    """What is wrong with the upstream; empty if it gives a score."""
    try:
        await upstream.rank("river", ["Danube"], asyncio.get_running_loop().time() + 30.0)
    except UpstreamError as error:
        return str(error)
    return ""


def count(metrics: Metrics, outcome: str) -> float:
    labels = {"model": "upstream", "outcome": outcome}
    return metrics.registry.get_sample_value("keyblock_upstream_requests_total", labels) or 0.0


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        (says(404, b"<html>not found</html>"), "answers 404: check the URL"),
        (says(302, location="http://elsewhere/"), "answers 302: it has moved"),
        (says(413), "answers 413: lower upstream_batch"),
        (says(200, b"\x1f\x8b\x08" + b"x" * 100, content_encoding="gzip"), "answers nonsense: no JSON"),
    ],
)
def test_an_answer_without_scores_is_a_line_of_advice(behaviour: Behaviour, problem: str) -> None:
    assert simulated(Network(behaviour), said).startswith(problem)


def test_a_request_to_a_busy_upstream_is_sent_again() -> None:
    network, metrics = Network(says(429, retry_after="0"), says(503), OK), Metrics()
    assert simulated(network, said, metrics) == ""
    assert (len(network.asked), count(metrics, "retried"), count(metrics, "ok")) == (3, 2, 1)


def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    """Nor asked again before that time is over, which is believed for ten minutes at most."""

    async def work(upstream: Upstream) -> list[str]:
        busy = [await said(upstream), await said(upstream)]
        await asyncio.sleep(600.0)
        return [*busy, await said(upstream)]

    network, metrics = Network(BUSY_FOR_LONG, OK), Metrics()
    left_alone = "is busy, and has asked to be left alone for 600 s more"
    assert simulated(network, work, metrics) == ["answers 429: it is busy", left_alone, ""]
    assert (len(network.asked), count(metrics, "skipped")) == (2, 1)


def test_a_retry_respects_a_retry_after_received_meanwhile() -> None:
    """Two requests, one busy answer each; the first would be sent again after a tenth of a second."""

    async def work(upstream: Upstream) -> list[str]:
        return await asyncio.gather(said(upstream), said(upstream))

    network = Network(says(429), says(429, retry_after="60"), OK)
    first, second = simulated(network, work, upstream_retries=2)
    assert (first[:24], second) == ("is busy, and has asked t", "answers 429: it is busy")
    assert len(network.asked) == 2


def test_an_upstream_that_is_down_is_skipped_for_a_while_and_found_again() -> None:
    async def work(upstream: Upstream) -> list[str]:
        down = [await said(upstream) for _ in range(AWAY_AFTER + 1)]
        await asyncio.sleep(AWAY_SECONDS)
        return [*down, await said(upstream), await said(upstream)]

    network, metrics = Network(*[says(500, b"oh")] * AWAY_AFTER, OK), Metrics()
    outcomes = simulated(network, work, metrics, upstream_retries=0)
    assert outcomes == [*["answers 500: 'oh'"] * AWAY_AFTER, "was away just now", "", ""]
    assert (len(network.asked), count(metrics, "skipped")) == (AWAY_AFTER + 2, 1)


def test_a_busy_upstream_is_not_tried_with_every_api() -> None:
    network = Network(BUSY_FOR_LONG)
    assert simulated(network, said, upstream_kind="auto") == "answers 429: it is busy"
    assert len(network.asked) == 1


def test_a_key_is_sent_without_the_line_end_of_its_file() -> None:
    """With it, HTTP refuses the header, and says so with the key in it."""
    network = Network(OK)
    assert simulated(network, said, upstream_key="secret\n") == ""
    assert network.headers[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize("host", ["xn--a", "a..b"])
def test_a_host_that_can_have_no_address_is_one_line(host: str) -> None:
    async def work() -> str:
        settings = Settings(upstream=f"http://{host}/rerank", upstream_kind=UpstreamKind.JINA, upstream_retries=0)
        return await said(Upstream(settings, Metrics().of("upstream")))

    assert asyncio.run(work()).startswith("cannot be reached (")
