"""KeyBlock in front of a reranker that runs already: a real one, and some that misbehave."""

import functools
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from keyblock.bundle import Bundle, BundleError
from service.app import create_app
from service.ranking.loading import upstream_bundle
from service.ranking.ranker import Ranker
from service.settings import DEFAULT_BUNDLE, Settings
from service.store.opening import open_store
from service.upstream import client as asking
from service.upstream.passages import passage_text
from tests.service.clock import FAR, Leaping
from tests.service.conftest import warm
from tests.service.faults import PATIENCE
from tests.service.upstream.answers import Behaviour, Network, dies, drips, floods, hangs, says, scores, tei
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


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that scores each text once, whatever is sent with it."""
    with Service(1, tmp_path_factory.mktemp("once") / "log", provider="cpu", second_look=False) as service:
        yield service


@functools.cache
def cutting(name: str, passages: int) -> Bundle:
    """The bundle that cuts passages."""
    bundle = upstream_bundle(Settings(upstream="http://host/rerank", upstream_model=name, upstream_passages=passages))
    assert bundle is not None
    return bundle


@contextmanager
def serving(url: str, **options: Any) -> Iterator[TestClient]:
    """The application in front of an upstream, by default one like Jina's, without a bundle of its own."""
    settings = Settings(upstream=url, threads=2, **{"upstream_kind": "jina", **options})
    bundle = cutting(settings.upstream_model, settings.upstream_passages)
    with TestClient(create_app(settings, Ranker(settings, [], open_store(settings), bundle))) as client:
        assert client.get("/health/ready").status_code == 200
        yield client


@contextmanager
def on(network: Network) -> Iterator[Network]:
    """New clients send their requests there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx, "AsyncClient", functools.partial(httpx.AsyncClient, transport=network))
        yield network


@contextmanager
def in_front_of(*behaviours: Behaviour, **options: Any) -> Iterator[tuple[TestClient, Network]]:
    with on(Network(*behaviours)) as network, serving("http://upstream/rerank", **options) as client:
        yield client, network


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


@pytest.mark.parametrize(("kind", "path"), [("auto", "/rerank"), ("tei", "/rerank"), ("auto", "/v2/rerank")])
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


def test_the_kind_of_the_upstream_is_detected_once() -> None:
    with in_front_of(tei, upstream_kind="auto", upstream_key="secret", upstream_model="theirs") as (client, network):
        assert client.get("/info").json()["upstream"]["kind"] == "auto"
        answers = [rerank(client) for _ in range(2)]
        info = client.get("/info").json()
    assert [order(answer)[0] for answer in answers] == [2, 2]
    assert ["texts" in asked for asked in network.asked] == [False, True, True, True]
    assert (info["upstream"]["kind"], info["model"], answers[0]["model"]) == ("tei", "theirs", "theirs")
    assert {asked["model"] for asked in network.asked} == {"theirs"}
    assert "secret" not in json.dumps(info)


def test_batches_and_requests_at_once_are_bounded() -> None:
    texts = [f"A river flows through Vienna, number {n}." for n in range(100)]
    with in_front_of(scores, upstream_batch=7, upstream_concurrency=3) as (client, network):
        answer = rerank(client, documents=texts)
        assert counted(client, "keyblock_upstream_requests_total", outcome="ok") == 15
        assert counted(client, "keyblock_upstream_seconds_count") == 15
        assert counted(client, "keyblock_stage_seconds_count", stage="upstream") == 1
    assert sorted(len(asked["documents"]) for asked in network.asked) == [2] + [7] * 14
    assert sorted(text for asked in network.asked for text in asked["documents"]) == sorted(texts)
    assert 1 <= network.most_at_once <= 3
    assert not answer["meta"]["degraded"]


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        (says(500, b"oh"), "answers 500: 'oh'"),
        (floods, "answers nonsense: more than"),
        (hangs, "has not answered in"),
        (drips, "has not answered in"),
        (dies, "cannot be reached ("),
    ],
)
def test_an_upstream_that_fails_costs_its_scores_and_nothing_else(
    behaviour: Behaviour, problem: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents are ordered by their blocks, the answer says so in a line, and so does the log, once."""
    caplog.set_level(logging.WARNING, "service")
    monkeypatch.setattr(asking, "SLOW_SECONDS", 0.0)
    seconds = 0.2 if problem.startswith("has not answered") else PATIENCE
    with in_front_of(behaviour, upstream_timeout_ms=int(1000 * seconds), upstream_retries=1) as (client, _):
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


def test_a_deadline_bounds_the_wait_for_the_upstream(monkeypatch: pytest.MonkeyPatch, clock: Leaping) -> None:
    """So short a time that it says nothing of the upstream, which is over once it is asked."""
    monkeypatch.setattr(asking, "SLOW_SECONDS", 2 * FAR)

    async def too_late(asked: dict[str, Any]) -> httpx.Response:
        clock.leap()
        return await hangs(asked)

    with in_front_of(too_late) as (client, _):
        answer = rerank(client, deadline_ms=1000 * FAR)
        assert counted(client, "keyblock_upstream_requests_total", outcome="late") == 1
    warnings = answer["meta"]["warnings"]
    assert answer["meta"]["degraded"]
    assert any(one.startswith("deadline_ms: 3 of 5 documents are ordered by their blocks alone") for one in warnings)
    assert not any(one.startswith("upstream") for one in warnings)
    assert order(answer)[:3] == [2, 3, 1]


def test_a_refused_batch_costs_its_own_scores_alone() -> None:
    """After three such errors in a request, the other batches are not sent."""
    options = {"upstream_batch": 1, "upstream_concurrency": 1, "upstream_retries": 0}
    texts, refused = [f"A river in Vienna, number {n}." for n in range(6)], says(422, b'{"error": "too long"}')
    with in_front_of(scores, refused, *[scores] * 4, refused, **options) as (client, network):
        answer = rerank(client, documents=texts)
        assert [one.get("scored_by", "model") for one in answer["results"]] == ["model"] * 5 + ["selector"]
        assert warned(answer).startswith("answers 422")
        assert len(network.asked) == 6
        assert warned(rerank(client, documents=texts)).startswith("answers 422")
        assert len(network.asked) == 6 + 3


def test_documents_by_id_are_read_for_the_upstream(tmp_path: Path) -> None:
    texts = [FILLER * 40, FILLER * 40 + DANUBE]
    with in_front_of(scores, store=str(tmp_path / "store")) as (client, network):
        lines = "\n".join(json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts))
        assert client.put("/documents", content=lines).json()["stored"] == 2
        answer = rerank(client, documents=[{"id": "0"}, {"id": "1"}, {"id": "2"}])
    assert order(answer) == [1, 0, 2]
    assert any(DANUBE.strip() in passage for passage in network.asked[0]["documents"])
    assert "document" not in answer["results"][0]
    assert answer["results"][-1]["scored_by"] == "order"


def test_an_upstream_is_served_beside_bundles(settings: Settings) -> None:
    beside = settings.model_copy(update={"upstream": "http://upstream/rerank", "upstream_model": "theirs"})
    with on(Network(scores)) as network, warm(beside) as client:
        info = client.get("/info").json()
        assert [(one["model"], "upstream" in one) for one in info["models"]] == [("tiny", False), ("theirs", True)]
        assert rerank(client)["model"] == "tiny"
        assert network.asked == []
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
    for wrong in ("s\u00e9cret", "se\ncret"):
        with pytest.raises(ValueError, match="must be ASCII on one line"):
            Settings(upstream="http://host/rerank", upstream_key=wrong)
    name = json.loads((DEFAULT_BUNDLE / "bundle.json").read_text(encoding="utf-8"))["name"]
    with pytest.raises(BundleError, match="are both called"):
        Ranker.load(Settings(upstream="http://host/rerank", upstream_model=name, bundle=(DEFAULT_BUNDLE,)))


def test_a_word_without_end_is_not_sent_whole() -> None:
    """It is one token of the tokenizer that measures passages, and would be refused, or paid for, where it is many."""
    documents = ["x" * 300_000, "See " + "A1b2" * 50_000 + " and Vienna.", FILLER * 100]
    with in_front_of(scores) as (client, network):
        answer = rerank(client, documents=documents)
        assert max(len(text) for text in network.asked[-1]["documents"]) <= 16 * 256
        rerank(client, documents=documents, max_tokens_per_doc=64)
        assert max(len(text) for text in network.asked[-1]["documents"]) <= 16 * 64
    assert not answer["meta"]["degraded"]


def test_a_newcomer_for_whom_it_has_no_time_is_refused_before_work_is_done() -> None:
    with in_front_of(scores, upstream_batch=1, max_backlog_ms=10) as (client, network):
        rerank(client, documents=[f"river {n}" for n in range(30)])
        app: Any = client.app
        scorer = app.state.ranker.upstream.scorer
        assert scorer.pace.seconds > 0
        assert scorer.backlog()(1.0) == 0
        asked, waiting = len(network.asked), scorer.waiting
        waiting["another"] = int(1000 / scorer.pace.seconds)
        busy = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS})
        assert (busy.status_code, int(busy.headers["retry-after"]) > 0, len(network.asked)) == (429, True, asked)
        del waiting["another"]
        assert not rerank(client)["meta"]["degraded"]
