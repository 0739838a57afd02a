"""KeyBlock in front of a reranker that runs already: a real one, and real servers that misbehave."""

import asyncio
import functools
import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from benchmarks.simulation.machine import SimulatedMachine
from keyblock.bundle import BundleError
from service.app import create_app
from service.ranking import loading
from service.ranking.ranker import Ranker
from service.settings import DEFAULT_BUNDLE, Settings, UpstreamKind
from service.store.opening import open_store
from service.telemetry.metrics import Metrics
from service.upstream import client as asking
from service.upstream import scorer
from service.upstream.passages import passage_text
from tests.keyblock.client.proxy import Fault, cut, dripping, says, silent
from tests.service.clock import FAR, Leaping
from tests.service.conftest import warm
from tests.service.faults import PATIENCE
from tests.service.upstream.servers import Server, babbles, floods, scores, tei
from tests.support.serving import Service

QUERY = "Which river flows through Vienna?"
FILLER = "The meeting went on for a while, and nobody said anything of interest about the weather. "
DANUBE = "The Danube is the river that flows through Vienna and Budapest. "
LONG = FILLER * 150 + DANUBE + FILLER * 150
DOCUMENTS = [
    {"text": FILLER * 300},
    {"text": "The Thames is a river in London."},
    {"id": "long", "title": "Minutes", "text": LONG},
    {"text": FILLER * 20 + "A river of people went through the door. " + FILLER * 20 + "Vienna is old. " + FILLER * 20},
    {"text": ""},
]
BUSY = says(429, b'{"message": "busy"}', retry_after="0")


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """The bundle that all these applications cut blocks by: reading it takes half of a start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load_bundle", functools.cache(loading.load_bundle))
        yield


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that scores each text once, whatever is sent with it."""
    with Service(1, tmp_path_factory.mktemp("once") / "log", provider="cpu", second_look=False) as service:
        yield service


@contextmanager
def serving(url: str, **options: Any) -> Iterator[TestClient]:
    """The application in front of the upstream, without a bundle of its own."""
    settings = Settings(upstream=url, threads=2, **options)
    ranker = Ranker(settings, [], open_store(settings), loading.upstream_bundle(settings))
    with TestClient(create_app(settings, ranker)) as client:
        assert client.get("/health/ready").status_code == 200
        yield client


def rerank(client: TestClient, **options: Any) -> dict[str, Any]:
    request = {"query": QUERY, "documents": DOCUMENTS, "return_blocks": True, **options}
    response = client.post("/rerank", json=request)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert sorted(result["index"] for result in answer["results"]) == list(range(len(request["documents"])))
    return answer


def order(answer: dict[str, Any]) -> list[int]:
    return [result["index"] for result in answer["results"]]


def warned(answer: dict[str, Any]) -> str:
    """The warning of an answer about the upstream."""
    assert answer["meta"]["degraded"]
    (warning,) = (one for one in answer["meta"]["warnings"] if one.startswith("upstream: "))
    return str(warning).removeprefix("upstream: ")


def counted(client: TestClient, name: str, **labels: str) -> float:
    """The metric, summed over its other labels."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    wanted = [line for line in lines if all(f'{key}="{value}"' in line for key, value in labels.items())]
    return sum(float(line.split()[-1]) for line in wanted)


KINDS = [("auto", "/rerank"), ("tei", "/rerank"), ("auto", "/v2/rerank")]


@pytest.mark.parametrize(("kind", "path"), KINDS)
def test_the_ranking_is_that_of_the_passages_scored_directly(once: Service, kind: str, path: str) -> None:
    with serving(once.url + path, upstream_kind=kind, upstream_passages=2) as client:
        answer = rerank(client, raw_scores=True)
    for result in answer["results"][:-1]:
        document = DOCUMENTS[result["index"]]
        texts = [passage_text(document["text"], document.get("title", ""), b["start"], b["end"]) for b in result["blocks"]]
        direct = httpx.post(once.url + "/rerank", json={"query": QUERY, "documents": texts, "raw_scores": True}).json()
        expected = {one["index"]: one["relevance_score"] for one in direct["results"]}
        assert [block["score"] for block in result["blocks"]] == pytest.approx([expected[n] for n in range(len(texts))], abs=0.02)
        assert result["relevance_score"] == pytest.approx(max(expected.values()), abs=0.02)
        assert "scored_by" not in result
    best = answer["results"][0]
    assert best["index"] == 2
    assert DANUBE.strip() in LONG[best["blocks"][0]["start"] : best["blocks"][0]["end"]]
    assert answer["results"][-1] == {"index": 4, "relevance_score": -100.0, "blocks": [], "scored_by": "order"}
    assert (answer["meta"]["degraded"], answer["model"]) == (False, "upstream")
    assert {"prepare", "queue", "upstream"} <= answer["meta"]["timings_ms"].keys()


def test_the_kind_of_the_upstream_is_detected_once_and_it_gets_its_key() -> None:
    """With the line end of the key's file, HTTP would refuse the header, and say so with the key in it."""
    with Server(tei) as server, serving(server.url, upstream_key="secret\n", upstream_model="theirs") as client:
        assert client.get("/info").json()["upstream"]["kind"] == "auto"
        answers = [rerank(client) for _ in range(2)]
        info = client.get("/info").json()
    assert [order(answer)[0] for answer in answers] == [2, 2]
    assert ["texts" in asked for asked in server.asked] == [False, True, True, True]
    assert (info["upstream"]["kind"], info["model"], answers[0]["model"]) == ("tei", "theirs", "theirs")
    assert {request.headers["authorization"] for request in server.seen} == {"Bearer secret"}
    assert {asked["model"] for asked in server.asked} == {"theirs"}
    assert "secret" not in json.dumps(info)


def test_batches_and_requests_at_once_are_bounded() -> None:
    texts = [f"A river flows through Vienna, number {n}." for n in range(100)]
    with Server(scores) as server, serving(server.url, upstream_kind="jina", upstream_batch=7, upstream_concurrency=3) as client:
        answer = rerank(client, documents=texts)
    assert sorted(len(asked["documents"]) for asked in server.asked) == [2] + [7] * 14
    assert sorted(text for asked in server.asked for text in asked["documents"]) == sorted(texts)
    assert 1 <= server.most_at_once <= 3
    assert not answer["meta"]["degraded"]


def test_a_request_to_a_busy_upstream_is_sent_again() -> None:
    with Server(BUSY, says(503, b""), scores) as server, serving(server.url, upstream_kind="jina") as client:
        answer = rerank(client)
        assert counted(client, "keyblock_upstream_requests_total", outcome="retried") == 2
        assert counted(client, "keyblock_upstream_requests_total", outcome="ok") == 1
        assert counted(client, "keyblock_upstream_seconds_count") == 1
        assert counted(client, "keyblock_stage_seconds_count", stage="upstream") == 1
    assert (len(server.asked), answer["meta"]["degraded"], order(answer)[0]) == (3, False, 2)


def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    """Nor asked again, with no API, before that time is over, which is believed for ten minutes at most."""
    with Server(says(429, b"", retry_after="3600"), scores) as server, serving(server.url) as client:
        assert warned(rerank(client)).startswith("answers 429: it is busy; ")
        assert re.match(r"is busy, and has asked to be left alone for (600|5\d\d) s more; ", warned(rerank(client)))
        assert counted(client, "keyblock_upstream_requests_total", outcome="skipped") == 1
        assert len(server.asked) == 1
        app: Any = client.app
        app.state.ranker.upstream.scorer._upstream._busy_until = 0.0  # that time is over
        assert not rerank(client)["meta"]["degraded"]


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        (says(404, b"<html>not found</html>"), "answers 404: check the URL"),
        (says(500, b"oh"), "answers 500: 'oh'"),
        (babbles, "answers 500: '"),
        (says(302, b"", location="http://elsewhere/"), "answers 302: it has moved"),
        (says(200, b"[" * 300 + b"]" * 300), "answers nonsense: no list of results: a list of too many levels"),
        (says(200, b'{"results": [{"index": 0, "relevance_score": NaN}]}'), "answers nonsense: no JSON"),
        (says(200, b"\x1f\x8b\x08" + b"x" * 100, content_encoding="gzip"), "answers nonsense: no JSON"),
        (floods, "answers nonsense: more than"),
        (silent, "has not answered in"),
        (dripping, "has not answered in"),
        (cut, "cannot be reached ("),
    ],
)
def test_an_upstream_that_fails_costs_its_scores_and_nothing_else(
    behaviour: Fault, problem: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents are ordered by their blocks, the answer says so in a line, and so does the log, once."""
    caplog.set_level(logging.WARNING, "service")
    monkeypatch.setattr(asking, "SLOW_SECONDS", 0.0)
    seconds = 1 if problem.startswith("has not answered") else PATIENCE
    options = {"upstream_kind": "jina", "upstream_timeout_ms": int(1000 * seconds), "upstream_retries": 1}
    with Server(behaviour) as server, serving(server.url, **options) as client:
        answer = rerank(client)
        assert counted(client, "keyblock_degraded_total", how="upstream") == 1
        assert rerank(client)["meta"]["degraded"]
    assert warned(answer).startswith(problem)
    assert warned(answer).endswith("; 4 of 5 documents are ordered by their blocks alone")
    assert order(answer)[:3] == [2, 3, 1]
    found = {result["index"]: result for result in answer["results"]}
    assert [found[n].get("scored_by") for n in range(5)] == ["order", "selector", "selector", "selector", "order"]
    best = found[2]["blocks"][0]
    assert DANUBE.strip() in LONG[best["start"] : best["end"]]
    lines = [record.getMessage() for record in caplog.records if record.name == asking.__name__]
    assert len(lines) == 1
    assert lines[0].startswith(f"upstream {problem}")


def test_a_retry_respects_a_retry_after_received_meanwhile() -> None:
    """Two requests, one busy answer each; the first would be sent again after a tenth of a second."""

    class Busy(httpx.AsyncBaseTransport):
        waits = iter(["", "60"])

        async def handle_async_request(self, _request: httpx.Request) -> httpx.Response:
            wait = next(self.waits)  # there is no third
            return httpx.Response(429, headers={"retry-after": wait} if wait else {}, stream=httpx.ByteStream(b""))

    async def both() -> list[Any]:
        upstream = asking.Upstream(settings, Metrics().of("upstream"))
        asked = [upstream.rank("river", ["Danube"], until=30.0) for _ in range(2)]
        return await asyncio.gather(*asked, return_exceptions=True)

    settings = Settings(upstream="http://upstream/rerank", upstream_kind=UpstreamKind.JINA, upstream_retries=2)
    machine = SimulatedMachine(Random(1))
    machine.carrier = Busy()
    with machine.standing_in():
        said = machine.loop.create_task(both())
        while machine.loop.step():
            pass
    assert [str(error)[:24] for error in said.result()] == ["is busy, and has asked t", "answers 429: it is busy"]


def test_an_upstream_that_is_down_is_skipped_for_a_while_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AWAY_SECONDS", 3600.0)
    behaviours: list[Fault] = [says(500, b"")] * asking.AWAY_AFTER + [scores]
    with Server(*behaviours) as server, serving(server.url, upstream_kind="jina", upstream_retries=0) as client:
        for _ in range(asking.AWAY_AFTER):
            assert warned(rerank(client)).startswith("answers 500")
        assert warned(rerank(client)).startswith("was away just now; ")
        assert counted(client, "keyblock_upstream_requests_total", outcome="skipped") == 1
        assert len(server.asked) == asking.AWAY_AFTER
        app: Any = client.app
        app.state.ranker.upstream.scorer._upstream._away_until = 0.0  # that while is over
        assert [rerank(client)["meta"]["degraded"] for _ in range(2)] == [False, False]


def test_a_deadline_bounds_the_wait_for_the_upstream(monkeypatch: pytest.MonkeyPatch, clock: Leaping) -> None:
    """So short a time that it says nothing of the upstream, which is over once it is asked."""
    monkeypatch.setattr(asking, "SLOW_SECONDS", 2 * FAR)

    def too_late(handler: Any) -> None:
        clock.leap()
        silent(handler)

    options = {"upstream_kind": "jina", "upstream_timeout_ms": int(2000 * FAR)}
    with Server(too_late) as server, serving(server.url, **options) as client:
        answer = rerank(client, deadline_ms=1000 * FAR)
        assert counted(client, "keyblock_upstream_requests_total", outcome="late") == 1
    warnings = answer["meta"]["warnings"]
    assert answer["meta"]["degraded"]
    assert any(one.startswith("deadline_ms: 3 of 5 documents are ordered by their blocks alone") for one in warnings)
    assert not any(one.startswith("upstream") for one in warnings)
    assert order(answer)[:3] == [2, 3, 1]


def test_its_own_limit_is_named_where_the_deadline_is_far() -> None:
    with Server(silent) as server, serving(server.url, upstream_kind="jina", upstream_timeout_ms=200) as client:
        answer = rerank(client, deadline_ms=1000 * FAR)
    assert warned(answer).startswith("has not answered in 200 ms; ")
    assert not any(one.startswith("deadline_ms") for one in answer["meta"]["warnings"])


def test_a_refused_batch_costs_its_own_scores_alone() -> None:
    """As if one passage is too long for the upstream; after three such errors in a request, the other batches are not sent."""
    options = {"upstream_batch": 1, "upstream_concurrency": 1, "upstream_retries": 0}
    texts = [f"A river in Vienna, number {n}." for n in range(6)]
    refused = says(422, b'{"error": "too long"}')
    with Server(scores, refused, scores) as server, serving(server.url, upstream_kind="jina", **options) as client:
        answer = rerank(client, documents=texts)
        assert [one.get("scored_by", "model") for one in answer["results"]] == ["model"] * 5 + ["selector"]
        assert warned(answer).startswith("answers 422")
        assert len(server.asked) == 6
    with Server(refused) as server, serving(server.url, upstream_kind="jina", **options) as client:
        assert warned(rerank(client, documents=texts)).startswith("answers 422")
        assert len(server.asked) == 3


def test_documents_by_id_are_read_for_the_upstream(tmp_path: Path) -> None:
    texts = [FILLER * 40, FILLER * 40 + DANUBE]
    with Server(scores) as server, serving(server.url, upstream_kind="jina", store=str(tmp_path / "store")) as client:
        lines = "\n".join(json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts))
        assert client.put("/documents", content=lines).json()["stored"] == 2
        answer = rerank(client, documents=[{"id": "0"}, {"id": "1"}, {"id": "2"}])
    assert order(answer) == [1, 0, 2]
    assert any(DANUBE.strip() in passage for passage in server.asked[0]["documents"])
    assert "document" not in answer["results"][0]
    assert answer["results"][-1]["scored_by"] == "order"


def test_an_upstream_is_served_beside_bundles(settings: Settings) -> None:
    theirs = {"upstream_model": "theirs"}
    with Server(scores) as server, warm(settings.model_copy(update=theirs | {"upstream": server.url})) as client:
        info = client.get("/info").json()
        assert [(one["model"], "upstream" in one) for one in info["models"]] == [("tiny", False), ("theirs", True)]
        assert rerank(client)["model"] == "tiny"
        assert server.asked == []
        assert rerank(client, model="theirs")["model"] == "theirs"
        assert client.post("/admin/reload").json()["models"] == ["tiny", "theirs"]
        assert order(rerank(client, model="theirs"))[0] == 2


def test_what_cannot_be_an_upstream_is_refused_at_the_start() -> None:
    for wrong in ("localhost:8080/rerank", "http:///rerank", "http://host/re rank", "http://host:99999/rerank"):
        with pytest.raises(ValueError, match="must be a URL like http://HOST:PORT/rerank"):
            Settings(upstream=wrong)
    assert Settings(upstream=" http://host/rerank\n").upstream == "http://host/rerank"
    with_password = Settings(upstream="http://me:word@host/rerank")
    assert with_password.upstream_place == "http://host/rerank"
    assert "word" not in repr(with_password)
    name = json.loads((DEFAULT_BUNDLE / "bundle.json").read_text(encoding="utf-8"))["name"]
    with pytest.raises(BundleError, match="are both called"):
        Ranker.load(Settings(upstream="http://host/rerank", upstream_model=name, bundle=(DEFAULT_BUNDLE,)))


def test_passages_are_cut_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of tables takes nearly a tenth of a second, for which nobody else would be answered."""
    threads = set()

    def noted(*arguments: Any) -> str:
        threads.add(threading.current_thread().name.partition("_")[0])
        return passage_text(*arguments)

    monkeypatch.setattr(scorer, "passage_text", noted)
    with Server(scores) as server, serving(server.url, upstream_kind="jina") as client:
        rerank(client)
    assert threads == {"asyncio"}


def test_a_word_without_end_is_not_sent_whole() -> None:
    """It is one token of the tokenizer that measures passages, and would be refused, or paid for, where it is many."""
    documents = ["x" * 300_000, "See " + "A1b2" * 50_000 + " and Vienna.", FILLER * 100]
    with Server(scores) as server, serving(server.url, upstream_kind="jina") as client:
        answer = rerank(client, documents=documents)
        assert max(len(text) for text in server.asked[-1]["documents"]) <= 16 * 256
        rerank(client, documents=documents, max_tokens_per_doc=64)
        assert max(len(text) for text in server.asked[-1]["documents"]) <= 16 * 64
    assert not answer["meta"]["degraded"]


def test_a_key_that_no_header_can_carry_is_refused() -> None:
    for wrong in ("s\u00e9cret", "se\ncret"):
        with pytest.raises(ValueError, match="must be ASCII on one line"):
            Settings(upstream="http://host/rerank", upstream_key=wrong)


@pytest.mark.parametrize("host", ["xn--a", "a..b"])
def test_a_host_that_can_have_no_address_costs_its_scores_and_nothing_else(host: str) -> None:
    with serving(f"http://{host}/rerank", upstream_kind="jina", upstream_retries=0) as client:
        assert warned(rerank(client)).startswith("cannot be reached (")


def test_a_newcomer_for_whom_it_has_no_time_is_refused_before_work_is_done() -> None:
    with Server(scores) as server, serving(server.url, upstream_kind="jina", upstream_batch=1, max_backlog_ms=10) as client:
        rerank(client, documents=[f"river {n}" for n in range(30)])
        app: Any = client.app
        scorer = app.state.ranker.upstream.scorer
        assert scorer.pace.seconds > 0
        assert scorer.backlog()(1.0) == 0
        asked, waiting = len(server.asked), scorer.waiting
        waiting["another"] = int(1000 / scorer.pace.seconds)
        busy = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS})
        assert (busy.status_code, int(busy.headers["retry-after"]) > 0, len(server.asked)) == (429, True, asked)
        del waiting["another"]
        assert not rerank(client)["meta"]["degraded"]
