"""What happens to a request when the model fails, dies, or its client goes."""

import asyncio
import gzip
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
import zstandard
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import ErrorBody, TeiErrorBody
from service.app import create_app
from service.http import endpoint
from service.http.bodies import parsing
from service.pace import ahead_in_turns, nothing_ahead
from service.queue.graphs import Graphs
from service.ranking.preparation import LARGE_CHARS
from service.ranking.ranker import EDGE_THREADS
from service.settings import Settings
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, Connection, Faulty, came, wait_for
from tests.service.rankers import Served, serving, started

GOOD: dict[str, Any] = {"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}
TEI: dict[str, Any] = {"query": "q", "texts": ["a"]}


@pytest.fixture
def served(settings: Settings, graphs: Graphs, faulty: Faulty) -> Iterator[Served]:
    with started(settings, graphs) as served:
        yield served
        faulty.open.set()


@pytest.fixture
def client(served: Served) -> TestClient:
    return served.client


def outcomes(served: Served, outcome: str, dialect: str = "native") -> float:
    return served.sample("requests", dialect=dialect, outcome=outcome)


def refused(response: httpx.Response, status: int, shape: Any = ErrorBody) -> Any:
    """The error, which has the promised shape, and says when to try again if that helps."""
    assert response.status_code == status, response.text
    assert ("retry-after" in response.headers) == (status in (429, 503))
    return TypeAdapter(shape).validate_json(response.content)


def test_a_failing_batch_is_a_500_and_the_next_request_is_served(served: Served, client: TestClient, faulty: Faulty) -> None:
    faulty.fault = RuntimeError("the device caught fire")
    assert refused(client.post("/rerank", json=GOOD), 500)["error"]["type"] == "internal"
    assert refused(client.post("/rerank", json=TEI), 500, TeiErrorBody)["error_type"] == "Backend"
    assert client.get("/health/ready").status_code == 200
    faulty.fault = None
    assert client.post("/rerank", json=GOOD).status_code == 200
    assert [outcomes(served, "failed"), outcomes(served, "failed", "tei"), outcomes(served, "ok")] == [1, 1, 1]


def test_a_dead_thread_turns_health_red_and_answers_503(served: Served, client: TestClient, faulty: Faulty) -> None:
    faulty.fault = SystemExit("ended")
    refused(client.post("/rerank", json=GOOD), 503)
    wait_for(lambda: not served.ranker.worker.alive)
    for path in ("/health/live", "/health/ready"):
        response = client.get(path)
        assert (response.status_code, response.json()) == (503, {"status": "the model's thread is dead"})
    assert "keyblock_ready 0.0" in client.get("/metrics").text
    assert refused(client.post("/rerank", json=TEI), 503)["error_type"] == "Unhealthy"
    assert client.get("/info").status_code == 200


def test_ready_only_after_the_warm_up(settings: Settings, graphs: Graphs, faulty: Faulty) -> None:
    faulty.open.clear()
    ranker = serving(settings, graphs)
    with TestClient(create_app(settings, ranker)) as client:
        assert client.get("/health/live").json() == {"status": "live"}
        response = client.get("/health/ready")
        assert (response.status_code, response.json()) == (503, {"status": "warming up"})
        response = client.post("/rerank", json=GOOD)
        assert (response.headers["retry-after"], "warming up" in refused(response, 503)["message"]) == ("1", True)
        response = client.get("/v2/models/tiny/ready")
        assert (response.status_code, response.json()) == (503, {"name": "tiny", "ready": False})
        faulty.open.set()
        wait_for(lambda: ranker.worker.ready)
        assert client.post("/rerank", json=GOOD).status_code == 200
        assert client.get("/health/ready").json() == {"status": "ready"}


def test_a_bug_in_preparation_is_a_500_without_its_words(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def select(*_: object) -> None:
        raise ValueError("secret of the inside")

    client, pipeline = served.client, served.ranker.models.default.bundle.pipeline
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(pipeline, "select_each", select)
        response = client.post("/rerank", json=GOOD)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "secret of the inside" in caplog.text
    assert client.post("/rerank", json=GOOD).status_code == 200


def test_the_sequences_of_a_client_that_has_gone_are_dropped(served: Served, faulty: Faulty) -> None:
    """Gauges, by which operators and autoscalers know of a queue, show them as long as they wait."""
    connection, worker = Connection({"query": "river", "documents": [f"river {n} " * 200 for n in range(64)]}), served.ranker.worker
    faulty.shapes.clear()
    faulty.open.clear()
    waiting = list[list[float]]()

    async def measure() -> None:
        await served.ranker.measure()
        gauges = [served.sample(name, model="tiny") for name in ("queued", "queued_requests", "queue_age")]
        waiting.append([*gauges, served.sample("wait")])

    async def work() -> None:
        task = asyncio.create_task(connection.ask(served.client.app))
        await came(lambda: worker.jobs() and worker.jobs()[0].n_waiting < 64)
        await measure()
        connection.go()
        await task
        await measure()
        faulty.open.set()
        await came(lambda: not worker.jobs())

    served.run(work)
    assert len(faulty.shapes) == 1  # of eight: the one that was running
    sequences, queued, *seconds = waiting[0]
    assert (sequences, queued, min(seconds) > 0, waiting[1]) == (48, 1, True, [0.0] * 4)
    assert [outcomes(served, "cancelled"), outcomes(served, "ok")] == [1, 0]


def test_the_work_that_waits_is_that_of_the_busiest_model(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autoscalers go by it: a model that scores by vectors, or an upstream that is idle, hides no queue."""
    busy, idle = ahead_in_turns([1.0, 2.0]), nothing_ahead
    models = [SimpleNamespace(name="tiny", scorer=SimpleNamespace(backlog=lambda ahead=ahead: ahead)) for ahead in (busy, idle)]
    with monkeypatch.context() as patch:
        patch.setattr(served.ranker, "models", models)
        served.run(served.ranker.measure)
    assert served.sample("wait") == 3


def test_a_client_that_goes_while_its_documents_are_prepared(served: Served) -> None:
    connection = Connection({"query": "river", "documents": [f"river {n}. " * 3000 for n in range(60)]})
    served.run(lambda: connection.leave(served.client.app, lambda: True))
    assert (outcomes(served, "cancelled"), served.sample("batches", model="tiny", outcome="ok")) == (1, 0)


def test_a_deadline_is_kept_by_ordering_after_the_blocks(served: Served, faulty: Faulty, clock: Leaping) -> None:
    """The model hangs: what it has not scored is ordered by its blocks, and nothing waits for it."""
    faulty.stopped = clock.leap
    faulty.open.clear()
    request = {"query": "river bridge", "documents": ["a city", "the river flooded the bridge", ""], "deadline_ms": 1000 * FAR}
    answer = served.client.post("/rerank", json=request).json()
    assert [(r["index"], r["scored_by"]) for r in answer["results"]] == [(1, "selector"), (0, "order"), (2, "order")]
    assert answer["meta"]["degraded"] is True
    assert "deadline_ms: 1 of 3 documents are ordered by their blocks alone" in answer["meta"]["warnings"][1]
    assert "1 of 3 documents were not scored, have no block that speaks for them and" in answer["meta"]["warnings"][2]
    assert (served.sample("degraded", how="selector", model="tiny"), outcomes(served, "ok")) == (1, 1)


def test_no_time_at_all_keeps_the_order_given(client: TestClient) -> None:
    answer = client.post("/rerank", json=GOOD | {"deadline_ms": 0}).json()
    assert [(r["index"], r["scored_by"]) for r in answer["results"]] == [(0, "order"), (1, "order")]
    assert "deadline_ms: 2 of 2 documents were not read and stay in the order given, last" in answer["meta"]["warnings"]


def test_enough_time_changes_nothing(client: TestClient) -> None:
    usual = client.post("/rerank", json=GOOD).json()
    answer = client.post("/rerank", json=GOOD | {"deadline_ms": 60_000, "priority": 3}).json()
    assert answer["results"] == usual["results"]
    assert (answer["meta"]["degraded"], answer["meta"]["warnings"]) == (False, [])


def test_of_two_requests_that_wait_the_one_of_the_smaller_priority_is_scored_first(served: Served, faulty: Faulty) -> None:
    request, ended = {"query": "river", "documents": [f"river {n} " * 200 for n in range(32)]}, list[int]()
    jobs, post = served.ranker.worker.jobs, served.client.post
    faulty.open.clear()
    with ThreadPoolExecutor(3) as pool:
        answers = []
        for number, priority in enumerate((0, 1, 0), 1):  # the first is being scored when the others come
            answers.append(pool.submit(post, "/rerank", json={**request, "query": f"river {number}", "priority": priority}))
            wait_for(lambda number=number: len(jobs()) == number)  # type: ignore[misc]
            jobs()[-1].future.add_done_callback(lambda _, number=number: ended.append(number))  # type: ignore[misc]
        faulty.open.set()
        assert [answer.result(PATIENCE).status_code for answer in answers] == [200] * 3
    wait_for(lambda: len(ended) == 3)  # an answer may come before its future has told
    assert ended == [1, 3, 2]


def test_a_deadline_for_requests_that_name_none(settings: Settings, graphs: Graphs, faulty: Faulty) -> None:
    with started(settings, graphs, default_deadline_ms=50) as (client, _):
        faulty.open.clear()
        assert client.post("/rerank", json=GOOD).json()["meta"]["degraded"] is True
        tei = client.post("/rerank", json={"query": "river", "texts": ["the river", "a city"]})
        faulty.open.set()
        assert tei.headers["x-degraded"] == "true"
        assert max(result["score"] for result in tei.json()) < 0.01, "nothing is known of their relevance"
        assert client.post("/rerank", json=GOOD | {"deadline_ms": 60_000}).json()["meta"]["degraded"] is False


def test_beyond_the_limits_requests_are_refused_unread_with_a_time_to_come_back(
    settings: Settings, graphs: Graphs, faulty: Faulty
) -> None:
    with started(settings, graphs, max_requests_in_flight=1) as served, ThreadPoolExecutor(1) as pool:
        client = served.client
        faulty.open.clear()
        first = pool.submit(client.post, "/rerank", json=GOOD)
        wait_for(lambda: bool(served.ranker.worker.jobs()))
        response = client.post("/rerank", content=b"not even JSON")
        answer = refused(response, 429)
        assert (answer["error"]["type"], answer["error_type"]) == ("overloaded", "Overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert 'keyblock_refused_total{why="requests"} 1.0' in client.get("/metrics").text
        assert "keyblock_in_flight_requests 1.0" in client.get("/metrics").text
        faulty.open.set()
        assert first.result(PATIENCE).status_code == 200
        assert client.post("/rerank", json=GOOD).status_code == 200
        assert outcomes(served, "refused") == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_bodies(served: Served, client: TestClient, encoding: str) -> None:
    body = orjson.dumps(GOOD) + b" " * 1000
    packed = gzip.compress(body) if encoding == "gzip" else zstandard.ZstdCompressor().compress(body)
    answer = client.post("/rerank", content=packed, headers={"content-encoding": encoding.upper()}).json()
    assert answer["results"] == client.post("/rerank", json=GOOD).json()["results"]
    response = client.post("/rerank", content=body, headers={"content-encoding": encoding})
    assert f"not {encoding}" in refused(response, 400)["message"]
    served.ranker.settings = served.ranker.settings.model_copy(update={"max_body_bytes": len(body) - 1})
    response = client.post("/rerank", content=packed, headers={"content-encoding": encoding})
    said = f"the body unpacks to more than the limit of {len(body) - 1} bytes: send fewer or shorter documents"
    assert refused(response, 413)["message"] == said


def test_small_bodies_that_unpack_to_much_keep_no_small_request_waiting(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thread for large requests is busy with them; plain and packed small requests are answered."""
    go_on, begun = threading.Event(), threading.Semaphore(0)
    unpack = endpoint.unpack

    def slowly(body: bytearray, encoding: str, limit: int) -> bytearray | None:
        if limit > endpoint.PIECEWISE_FROM:
            begun.release()
            assert go_on.wait(PATIENCE)
        return unpack(body, encoding, limit)

    monkeypatch.setattr(endpoint, "unpack", slowly)
    bomb = zstandard.compress(b'{"query": "q", "documents": ["a"' + b" " * (3 << 20) + b"]}")
    assert len(bomb) < 1000
    with ThreadPoolExecutor(3) as pool:
        headers = {"content-encoding": "zstd"}
        bombs = [pool.submit(client.post, "/rerank", content=bomb, headers=headers) for _ in range(3)]
        assert all(begun.acquire(timeout=PATIENCE) for _ in range(EDGE_THREADS))
        small = client.post("/rerank", json=GOOD)
        packed = client.post("/rerank", content=zstandard.compress(orjson.dumps(GOOD)), headers=headers)
        assert not any(one.done() for one in bombs)
        go_on.set()
        assert [one.result().status_code for one in bombs] == [200] * 3
    assert (small.status_code, packed.status_code) == (200, 200)
    assert small.json()["results"] == packed.json()["results"]


def test_a_model_that_hangs_turns_health_red_until_it_answers(served: Served, client: TestClient, faulty: Faulty) -> None:
    worker = served.ranker.worker
    worker.caps = worker.caps._replace(hung_after=0.05)
    faulty.open.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/rerank", json=GOOD)
        wait_for(lambda: worker.hung)
        for path in ("/health/live", "/health/ready"):
            assert client.get(path).json() == {"status": "the model's thread hangs"}
        response = client.post("/rerank", json=GOOD)
        assert (response.status_code, response.headers["retry-after"]) == (503, "10")
        faulty.open.set()
        assert waiting.result(PATIENCE).status_code == 200
        assert client.get("/health/live").status_code == 200


@pytest.mark.parametrize("path", ["/rerank", "/documents"])
def test_unfinished_requests_are_answered_when_the_service_ends(
    settings: Settings,
    graphs: Graphs,
    faulty: Faulty,
    tmp_path: Path,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is cancelled once shutdown_seconds are over: a balancer may ask another replica then, and no fault is logged."""
    monkeypatch.setattr(parsing, "DISCARD_SECONDS", 0.1)
    method, more = ("POST", False) if path == "/rerank" else ("PUT", True)
    connection = Connection(GOOD, method, path, more=more)
    with started(settings, graphs, store=str(tmp_path / "store")) as served:
        ranker = served.ranker

        async def work() -> None:
            faulty.open.clear()
            exchange = asyncio.create_task(connection.ask(served.client.app))
            load = ranker.admission.load if path == "/rerank" else ranker.store_admission.load
            await came(lambda: load.bytes > 0 and connection.taken)
            await asyncio.sleep(0.05)
            exchange.cancel("timeout graceful shutdown exceeded")
            faulty.open.set()
            await exchange

        served.run(work)
    assert connection.status == 503
    assert (b"retry-after", b"1") in connection.sent[0]["headers"]
    assert "the service is ending" in connection.said["message"]
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert ranker.admission.load.requests == ranker.store_admission.load.bytes == 0


def test_a_client_that_sends_too_slowly_loses_its_place(settings: Settings, graphs: Graphs) -> None:
    connection = Connection(b"{", more=True)
    with started(settings, graphs, body_seconds=0.05) as served:
        served.run(partial(connection.ask, served.client.app))
    assert connection.status == 408
    assert TypeAdapter(ErrorBody).validate_python(connection.said)["error"]["type"] == "timeout"
    assert (b"connection", b"close") in connection.sent[0]["headers"]
    assert served.ranker.admission.load.requests == 0


def test_an_answer_has_its_place_until_the_client_has_read_it(served: Served) -> None:
    text = "the river flooded the bridge " * 1000
    connection, load = Connection({**GOOD, "documents": [text], "return_documents": True}), served.ranker.admission.load
    connection.reading.clear()

    async def work() -> None:
        task = asyncio.create_task(connection.ask(served.client.app))
        await came(lambda: connection.sent)
        length = int(dict(connection.sent[0]["headers"])[b"content-length"])
        assert len(text) < length < len(text) + 2000
        assert (load.requests, load.documents, load.bytes) == (1, 0, length)
        connection.reading.set()
        await task
        assert (load.requests, load.documents, load.bytes) == (0, 0, 0)

    served.run(work)


def test_a_declared_length_beyond_the_limit_holds_nobody_up(served: Served, settings: Settings) -> None:
    """It is refused before it has a place."""
    seen: list[int] = []
    client, admission, enter = served.client, served.ranker.admission, served.ranker.admission.enter
    admission.enter = lambda n_bytes, **more: (seen.append(n_bytes), enter(n_bytes, **more))[1]  # type: ignore[method-assign,misc,assignment]
    refused(client.post("/rerank", content=b"x" * (settings.max_body_bytes + 1)), 413)
    assert not seen
    assert client.post("/rerank", json=GOOD).status_code == 200
    assert len(seen) == 1


def test_a_body_that_does_not_come_takes_no_room_from_others(settings: Settings, graphs: Graphs) -> None:
    """A request holds the bytes that have arrived, not those that were declared, and is in flight once all have."""
    slow, quick = Connection(b'{"query": ', more=True, content_length="9900"), Connection(GOOD)
    with started(settings, graphs, max_bytes_in_flight=10_000, max_requests_in_flight=1) as served:
        load, app = served.ranker.admission.load, served.client.app

        async def work() -> None:
            waiting = asyncio.create_task(slow.ask(app))
            await came(lambda: slow.taken)
            assert (load.requests, load.bytes) == (0, 10)
            await quick.ask(app)
            slow.go()
            await waiting

        served.run(work)
    assert (quick.status, load.bytes) == (200, 0)


def test_after_a_body_that_was_not_read_the_connection_ends(client: TestClient) -> None:
    response = client.post("/rerank", content=b"{}", headers={"content-encoding": "br", "expect": "100-continue"})
    assert (response.status_code, response.headers["connection"]) == (415, "close")
    response = client.post("/rerank", content=b"{}", headers={"content-encoding": "br"})
    assert refused(response, 415)["error"]["type"] == "unsupported_encoding"
    assert "connection" not in response.headers


@pytest.mark.parametrize(("asked", "aside"), [({}, False), ({"prune": True}, True)])
def test_spans_of_large_texts_are_found_where_large_requests_are_written(
    served: Served, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], aside: bool
) -> None:
    """The body is small enough to be read where small ones are; the sentences of all its documents take longer."""
    taken, off_loop = list[bool](), served.ranker.off_loop

    async def watched(work: Any, *, large: bool) -> Any:
        taken.append(large)
        return await off_loop(work, large=large)

    monkeypatch.setattr(served.ranker, "off_loop", watched)
    text = GOOD["documents"][0] + ". "
    documents = [text * (LARGE_CHARS // len(text) + 1)]
    assert served.client.post("/rerank", json=GOOD | {"documents": documents} | asked).status_code == 200
    assert taken == [False, aside]
