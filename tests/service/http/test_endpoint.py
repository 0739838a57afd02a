"""What happens to a request when the model fails, dies, or its client goes."""

import asyncio
import gzip
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter
from starlette.testclient import TestClient
from starlette.types import Message

from keyblock.wire import ErrorBody
from service.app import ERRORS, RERANK_PATHS, create_app
from service.http import endpoint
from service.http.bodies import parsing
from service.queue.graphs import Graphs
from service.ranking.preparation import LARGE_CHARS
from service.ranking.ranker import EDGE_THREADS, Ranker
from service.settings import Settings
from service.store.opening import open_store
from service.telemetry.metrics import TABLE
from tests.service.clock import FAR, Leaping
from tests.service.faults import PATIENCE, Connection, Faulty, came, wait_for
from tests.service.rankers import serving

GOOD: dict[str, Any] = {"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}


@pytest.fixture
def ranker(settings: Settings, graphs: Graphs) -> Ranker:
    return serving(settings, graphs)


@pytest.fixture
def client(settings: Settings, ranker: Ranker, faulty: Faulty) -> Iterator[TestClient]:
    with TestClient(create_app(settings, ranker)) as client:
        wait_for(lambda: ranker.worker.ready)
        yield client
        faulty.open.set()


def requests(registry: CollectorRegistry, outcome: str, dialect: str = "native") -> float:
    return registry.get_sample_value(TABLE["requests"].name, {"dialect": dialect, "outcome": outcome}) or 0.0


def test_a_failing_batch_is_a_500_and_the_next_request_is_served(client: TestClient, faulty: Faulty, ranker: Ranker) -> None:
    faulty.fault = RuntimeError("the device caught fire")
    response = client.post("/rerank", json=GOOD)
    assert (response.status_code, response.json()["error"]["type"]) == (500, "internal")
    response = client.post("/rerank", json={"query": "q", "texts": ["a"]})
    assert (response.status_code, response.json()["error_type"]) == (500, "Backend")
    assert client.get("/health/ready").status_code == 200
    faulty.fault = None
    assert client.post("/rerank", json=GOOD).status_code == 200
    registry = ranker.metrics.registry
    assert [requests(registry, "failed"), requests(registry, "failed", "tei"), requests(registry, "ok")] == [1, 1, 1]


def test_every_status_that_can_be_had_is_documented(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in RERANK_PATHS:
        assert {int(status) for status in paths[path]["post"]["responses"]} == {200, *ERRORS}


def test_a_dead_thread_turns_health_red_and_answers_503(client: TestClient, faulty: Faulty, ranker: Ranker) -> None:
    faulty.fault = SystemExit("ended")
    assert client.post("/rerank", json=GOOD).status_code == 503
    wait_for(lambda: not ranker.worker.alive)
    for path in ("/health/live", "/health/ready"):
        response = client.get(path)
        assert (response.status_code, response.json()) == (503, {"status": "the model's thread is dead"})
    assert "keyblock_ready 0.0" in client.get("/metrics").text
    assert client.post("/rerank", json={"query": "q", "texts": ["a"]}).json()["error_type"] == "Unhealthy"
    assert client.get("/info").status_code == 200


def test_ready_only_after_the_warm_up(settings: Settings, ranker: Ranker, faulty: Faulty) -> None:
    faulty.open.clear()
    with TestClient(create_app(settings, ranker)) as client:
        assert client.get("/health/live").json() == {"status": "live"}
        assert client.get("/health/ready").json() == {"status": "warming up"}
        assert client.get("/health/ready").status_code == 503
        response = client.post("/rerank", json=GOOD)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert "warming up" in response.json()["message"]
        faulty.open.set()
        wait_for(lambda: ranker.worker.ready)
        assert client.post("/rerank", json=GOOD).status_code == 200
        assert client.get("/health/ready").json() == {"status": "ready"}


def test_a_bug_in_preparation_is_a_500_without_its_words(
    client: TestClient, ranker: Ranker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def select(*_: object) -> None:
        raise ValueError("secret of the inside")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(ranker.models.default.bundle.pipeline, "select_each", select)
        response = client.post("/rerank", json=GOOD)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "secret of the inside" in caplog.text
    assert client.post("/rerank", json=GOOD).status_code == 200


def test_the_sequences_of_a_client_that_has_gone_are_dropped(settings: Settings, ranker: Ranker, faulty: Faulty) -> None:
    app = create_app(settings, ranker)
    connection = Connection({"query": "river", "documents": [f"river {n} " * 200 for n in range(64)]})

    async def work() -> None:
        async with app.router.lifespan_context(app):
            await came(lambda: ranker.worker.ready)
            faulty.shapes.clear()
            faulty.open.clear()
            task = asyncio.create_task(app(connection.scope(), connection.receive, connection.send))
            await came(lambda: ranker.worker.jobs() and ranker.worker.jobs()[0].n_waiting < 64)
            connection.gone.set()
            async with asyncio.timeout(PATIENCE):
                await task
            faulty.open.set()
            await came(lambda: not ranker.worker.jobs())

    asyncio.run(work())
    assert len(faulty.shapes) == 1  # of eight: the one that was running
    assert requests(ranker.metrics.registry, "cancelled") == 1
    assert requests(ranker.metrics.registry, "ok") == 0


def test_a_client_that_goes_while_its_documents_are_prepared(settings: Settings, ranker: Ranker, faulty: Faulty) -> None:
    app = create_app(settings.model_copy(update={"max_documents": 1000}), ranker)
    connection = Connection({"query": "river", "documents": [f"river {n}. " * 3000 for n in range(60)]})

    async def work() -> None:
        async with app.router.lifespan_context(app):
            await came(lambda: ranker.worker.ready)
            connection.gone.set()
            async with asyncio.timeout(PATIENCE):
                await app(connection.scope(), connection.receive, connection.send)

    asyncio.run(work())
    assert requests(ranker.metrics.registry, "cancelled") == 1
    assert ranker.metrics.registry.get_sample_value("keyblock_batches_total", {"model": "tiny", "outcome": "ok"}) == 0


def test_a_deadline_is_kept_by_ordering_after_the_blocks(
    client: TestClient, faulty: Faulty, ranker: Ranker, clock: Leaping
) -> None:
    """The model hangs: what it has not scored is ordered by its blocks, and nothing waits for it."""
    faulty.stopped = clock.leap
    faulty.open.clear()
    documents = ["a city", "the river flooded the bridge", ""]
    answer = client.post("/rerank", json={"query": "river bridge", "documents": documents, "deadline_ms": 1000 * FAR}).json()
    assert [(r["index"], r["scored_by"]) for r in answer["results"]] == [(1, "selector"), (0, "order"), (2, "order")]
    assert answer["meta"]["degraded"] is True
    assert "deadline_ms: 1 of 3 documents are ordered by their blocks alone" in answer["meta"]["warnings"][1]
    assert "1 of 3 documents were not scored, have no block that speaks for them and" in answer["meta"]["warnings"][2]
    faulty.open.set()
    registry = ranker.metrics.registry
    assert registry.get_sample_value("keyblock_degraded_total", {"how": "selector", "model": "tiny"}) == 1
    assert requests(registry, "ok") == 1


def test_no_time_at_all_keeps_the_order_given(client: TestClient) -> None:
    answer = client.post("/rerank", json=GOOD | {"deadline_ms": 0}).json()
    assert [(r["index"], r["scored_by"]) for r in answer["results"]] == [(0, "order"), (1, "order")]
    assert "deadline_ms: 2 of 2 documents were not read and stay in the order given, last" in answer["meta"]["warnings"]


def test_enough_time_changes_nothing(client: TestClient) -> None:
    usual = client.post("/rerank", json=GOOD).json()
    answer = client.post("/rerank", json=GOOD | {"deadline_ms": 60_000, "priority": 3}).json()
    assert answer["results"] == usual["results"]
    assert (answer["meta"]["degraded"], answer["meta"]["warnings"]) == (False, [])


def test_a_deadline_for_requests_that_name_none(settings: Settings, graphs: Graphs, faulty: Faulty) -> None:
    hurried = settings.model_copy(update={"default_deadline_ms": 50})
    ranker = serving(hurried, graphs)
    with TestClient(create_app(hurried, ranker)) as client:
        wait_for(lambda: ranker.worker.ready)
        faulty.open.clear()
        assert client.post("/rerank", json=GOOD).json()["meta"]["degraded"] is True
        faulty.open.set()
        assert client.post("/rerank", json=GOOD | {"deadline_ms": 60_000}).json()["meta"]["degraded"] is False


def test_beyond_the_limits_requests_are_refused_unread_with_a_time_to_come_back(
    settings: Settings, graphs: Graphs, faulty: Faulty
) -> None:
    full = settings.model_copy(update={"max_requests_in_flight": 1})
    ranker = serving(full, graphs)
    with TestClient(create_app(full, ranker)) as client, ThreadPoolExecutor(1) as pool:
        wait_for(lambda: ranker.worker.ready)
        faulty.open.clear()
        first = pool.submit(client.post, "/rerank", json=GOOD)
        wait_for(lambda: bool(ranker.worker.jobs()))
        response = client.post("/rerank", content=b"not even JSON")
        answer = TypeAdapter(ErrorBody).validate_json(response.content)
        assert (response.status_code, answer["error"]["type"], answer["error_type"]) == (429, "overloaded", "Overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert 'keyblock_refused_total{why="requests"} 1.0' in client.get("/metrics").text
        assert "keyblock_in_flight_requests 1.0" in client.get("/metrics").text
        faulty.open.set()
        assert first.result(PATIENCE).status_code == 200
        assert client.post("/rerank", json=GOOD).status_code == 200
        assert requests(ranker.metrics.registry, "refused") == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_bodies(client: TestClient, encoding: str) -> None:
    body = orjson.dumps(GOOD)
    packed = gzip.compress(body) if encoding == "gzip" else zstandard.ZstdCompressor().compress(body)
    answer = client.post("/rerank", content=packed, headers={"content-encoding": encoding.upper()}).json()
    assert answer["results"] == client.post("/rerank", json=GOOD).json()["results"]
    response = client.post("/rerank", content=body, headers={"content-encoding": encoding})
    assert (response.status_code, f"not {encoding}" in response.json()["message"]) == (400, True)


def test_small_bodies_that_unpack_to_much_keep_no_small_request_waiting(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thread for large requests is busy with them; plain and packed small requests are answered."""
    go_on, begun = threading.Event(), threading.Semaphore(0)
    unpack = endpoint.unpack

    def slowly(*arguments: Any) -> bytearray:
        begun.release()
        assert go_on.wait(PATIENCE)
        return unpack(*arguments)

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


def test_a_model_that_hangs_turns_health_red_until_it_answers(settings: Settings, graphs: Graphs, faulty: Faulty) -> None:
    ranker = serving(settings, graphs)
    ranker.worker.caps = ranker.worker.caps._replace(hung_after=0.05)
    with TestClient(create_app(settings, ranker)) as client, ThreadPoolExecutor(1) as pool:
        wait_for(lambda: ranker.worker.ready)
        faulty.open.clear()
        waiting = pool.submit(client.post, "/rerank", json=GOOD)
        wait_for(lambda: ranker.worker.hung)
        for path in ("/health/live", "/health/ready"):
            assert client.get(path).json() == {"status": "the model's thread hangs"}
        response = client.post("/rerank", json=GOOD)
        assert (response.status_code, response.headers["retry-after"]) == (503, "10")
        faulty.open.set()
        assert waiting.result(PATIENCE).status_code == 200
        assert client.get("/health/live").status_code == 200


@pytest.mark.parametrize("path", ["/rerank", "/documents"])
def test_unfinished_requests_are_logged_when_the_service_ends(
    settings: Settings, graphs: Graphs, faulty: Faulty, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled once shutdown_seconds are over: a balancer may ask another replica then, and no fault is logged."""
    monkeypatch.setattr(parsing, "DISCARD_SECONDS", 0.1)
    ranker = serving(settings, graphs, open_store(settings.model_copy(update={"store": str(tmp_path / "store")})))
    app = create_app(settings, ranker)
    method, more = ("POST", False) if path == "/rerank" else ("PUT", True)
    connection = Connection(GOOD, method, path, more=more)

    async def work() -> None:
        async with app.router.lifespan_context(app):
            await came(lambda: ranker.worker.ready)
            faulty.open.clear()
            exchange = asyncio.create_task(app(connection.scope(), connection.receive, connection.send))
            load = ranker.admission.load if path == "/rerank" else ranker.store_admission.load
            await came(lambda: load.bytes > 0 and connection.taken)
            await asyncio.sleep(0.05)
            exchange.cancel("timeout graceful shutdown exceeded")
            faulty.open.set()
            async with asyncio.timeout(PATIENCE):
                await exchange

    asyncio.run(work())
    assert connection.sent[0]["status"] == 503
    assert (b"retry-after", b"1") in connection.sent[0]["headers"]
    assert b"the service is ending" in connection.sent[1]["body"]
    assert ranker.admission.load.requests == ranker.store_admission.load.bytes == 0


def test_a_client_that_sends_too_slowly_loses_its_place(settings: Settings, graphs: Graphs) -> None:
    hasty = settings.model_copy(update={"body_seconds": 0.05})
    ranker = serving(hasty, graphs)
    app = create_app(hasty, ranker)
    connection = Connection(GOOD)
    chunks = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> Message:
        chunk = next(chunks, None)
        return chunk if chunk is not None else await connection.gone.wait()  # type: ignore[return-value]

    async def work() -> None:
        async with app.router.lifespan_context(app):
            await came(lambda: ranker.worker.ready)
            async with asyncio.timeout(PATIENCE):
                await app(connection.scope(), receive, connection.send)

    asyncio.run(work())
    assert connection.sent[0]["status"] == 408
    assert (b"connection", b"close") in connection.sent[0]["headers"]
    assert ranker.admission.load.requests == 0


def test_an_answer_has_its_place_until_the_client_has_read_it(settings: Settings, graphs: Graphs) -> None:
    ranker = serving(settings, graphs)
    app = create_app(settings, ranker)
    text = "the river flooded the bridge " * 1000
    connection, read = Connection({**GOOD, "documents": [text], "return_documents": True}), asyncio.Event()

    async def send(message: Message) -> None:
        connection.sent.append(message)
        await read.wait()

    async def work() -> None:
        async with app.router.lifespan_context(app):
            await came(lambda: ranker.worker.ready)
            task = asyncio.create_task(app(connection.scope(), connection.receive, send))
            await came(lambda: connection.sent)
            load = ranker.admission.load
            length = int(dict(connection.sent[0]["headers"])[b"content-length"])
            assert len(text) < length < len(text) + 2000
            assert (load.requests, load.documents, load.bytes) == (1, 0, length)
            read.set()
            async with asyncio.timeout(PATIENCE):
                await task
            assert (load.requests, load.documents, load.bytes) == (0, 0, 0)

    asyncio.run(work())


def test_a_declared_length_beyond_the_limit_holds_nobody_up(client: TestClient, ranker: Ranker, settings: Settings) -> None:
    """It is refused before it has a place."""
    seen: list[int] = []
    enter = ranker.admission.enter
    ranker.admission.enter = lambda n_bytes, **more: (seen.append(n_bytes), enter(n_bytes, **more))[1]  # type: ignore[method-assign,misc,assignment]
    response = client.post("/rerank", content=b"x" * (settings.max_body_bytes + 1))
    assert (response.status_code, seen) == (413, [])
    assert client.post("/rerank", json=GOOD).status_code == 200
    assert len(seen) == 1


def test_a_body_that_does_not_come_takes_no_room_from_others(settings: Settings, graphs: Graphs) -> None:
    """A request holds the bytes that have arrived, not those that were declared, and is in flight once all have."""
    limits = settings.model_copy(update={"max_bytes_in_flight": 10_000, "max_requests_in_flight": 1})
    ranker = serving(limits, graphs)
    app = create_app(limits, ranker)
    slow, quick = Connection(b'{"query": ', more=True), Connection(GOOD)
    declared = [(b"content-length", b"9900")]

    async def work() -> None:
        async with app.router.lifespan_context(app):
            await came(lambda: ranker.worker.ready)
            waiting = asyncio.create_task(app(slow.scope() | {"headers": declared}, slow.receive, slow.send))
            await came(lambda: slow.taken)
            assert (ranker.admission.load.requests, ranker.admission.load.bytes) == (0, 10)
            await app(quick.scope(), quick.receive, quick.send)
            slow.gone.set()
            await waiting

    asyncio.run(work())
    assert quick.sent[0]["status"] == 200
    assert ranker.admission.load.bytes == 0


def test_after_a_body_that_was_not_read_the_connection_ends(client: TestClient) -> None:
    response = client.post("/rerank", content=b"{}", headers={"content-encoding": "br", "expect": "100-continue"})
    assert (response.status_code, response.headers["connection"]) == (415, "close")
    assert "connection" not in client.post("/rerank", content=b"{}", headers={"content-encoding": "br"}).headers


def test_teis_clients_see_that_a_deadline_cost_something(settings: Settings, graphs: Graphs, faulty: Faulty) -> None:
    hurried = settings.model_copy(update={"default_deadline_ms": 50})
    ranker = serving(hurried, graphs)
    with TestClient(create_app(hurried, ranker)) as client:
        wait_for(lambda: ranker.worker.ready)
        body = {"query": "river", "texts": ["the river", "a city"]}
        faulty.open.clear()
        response = client.post("/rerank", json=body)
        faulty.open.set()
        assert response.headers["x-degraded"] == "true"
        assert max(result["score"] for result in response.json()) < 0.01, "nothing is known of their relevance"


@pytest.mark.parametrize(("asked", "aside"), [({}, False), ({"prune": True}, True)])
def test_spans_of_large_texts_are_found_where_large_requests_are_written(
    client: TestClient, ranker: Ranker, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], aside: bool
) -> None:
    """The body is small enough to be read where small ones are; the sentences of all its documents take longer."""
    taken, off_loop = list[bool](), ranker.off_loop

    async def watched(work: Any, *, large: bool) -> Any:
        taken.append(large)
        return await off_loop(work, large=large)

    monkeypatch.setattr(ranker, "off_loop", watched)
    text = GOOD["documents"][0] + ". "
    documents = [text * (LARGE_CHARS // len(text) + 1)]
    assert client.post("/rerank", json=GOOD | {"documents": documents} | asked).status_code == 200
    assert taken == [False, aside]
