"""Bundles and keys that change under a running service."""

import asyncio
import gc
import hashlib
import json
import logging
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from starlette.datastructures import State
from starlette.testclient import TestClient

from keyblock.bundle import GRAPH_FILE, MANIFEST_FILE, Bundle, BundleError
from service.keys.keys import New, make
from service.queue.worker import Worker
from service.ranking.loading import read_bundles
from service.ranking.ranker import Ranker
from service.ranking.reload import Reloader, ReloadError
from service.settings import Settings
from tests.service.conftest import rerank, warm
from tests.service.faults import PATIENCE, wait_for
from tests.service.rankers import another

REQUEST: dict[str, Any] = {
    "query": "which river flooded the old bridge",
    "documents": [f"Number {n}. " + "The river flooded the stone bridge. " * (n % 9) + "A city. " * n for n in range(12)],
    "raw_scores": True,
}
KEYLESS = State({"keyring": None})


class Service:
    """What is served from a directory of bundles."""

    def __init__(self, client: TestClient, tiny: Path, folder: Path) -> None:
        self.client, self._tiny, self.folder = client, tiny, folder
        app: Any = client.app
        self.ranker: Ranker = app.state.ranker

    def put(self, name: str, budget: int = 128) -> None:
        """A bundle takes the place of the one of its name; the budget tells it from others."""
        another(self._tiny, self.folder / name, name, packing={"budget": budget, "budget_range": (64, 256)})

    def reload(self, status: int = 200) -> dict[str, Any]:
        response = self.client.post("/admin/reload")
        assert response.status_code == status, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def rank(self, model: str | None = None) -> dict[str, Any]:
        return rerank(self.client, **REQUEST, model=model)

    def budget(self, model: str | None = None) -> int:
        return int(self.rank(model)["meta"]["tokens_per_document"])

    def metric(self, name: str, **labels: str) -> float:
        return self.ranker.metrics.registry.get_sample_value(f"keyblock_{name}", labels) or 0.0


@pytest.fixture(scope="module")
def started(bundle_path: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("reload") / "bundles"
    another(bundle_path, folder / "first", "first")
    with warm(settings.model_copy(update={"bundle": (folder,), "score_cache_bytes": 1 << 20})) as client:
        yield Service(client, bundle_path, folder)


@pytest.fixture
def service(started: Service) -> Service:
    """It serves one bundle, `first`, with a budget of 128."""
    shutil.rmtree(started.folder, ignore_errors=True)
    started.put("first")
    started.reload()
    return started


def test_a_new_bundle_is_served_and_one_that_is_gone_is_not(service: Service) -> None:
    before = service.rank()
    service.put("second", 64)
    answer = service.reload()
    assert answer.pop("seconds") > 0
    assert answer == {"models": ["first", "second"], "loaded": ["second"], "removed": [], "keys": []}
    assert service.rank("first")["results"] == before["results"]
    assert service.budget("second") == 64
    shutil.rmtree(service.folder / "first")
    assert service.reload()["removed"] == ["first"]
    assert service.rank("first")["model"] == "second"
    assert service.client.get("/info").json()["model"] == "second"
    build = [line for line in service.client.get("/metrics").text.splitlines() if line.startswith("keyblock_build_info{")]
    assert [('model="second"' in line, 'precision="fp32"' in line) for line in build] == [(True, True)]


def test_scores_of_a_bundle_are_forgotten_with_it(service: Service) -> None:
    """A reload that changes nothing forgets no scores."""
    service.rank()
    before = service.metric("score_cache_bytes")
    assert before > 0
    service.reload()
    assert service.metric("score_cache_bytes") == before
    service.put("first", 96)
    service.reload()
    assert service.metric("score_cache_bytes") == 0


def damaged(folder: Path) -> None:
    (folder / GRAPH_FILE).write_bytes(b"garbage" * 100)


def no_graph(folder: Path, content: bytes = b"garbage") -> None:
    """A bundle whose files are all as its manifest says, and whose graph is none."""
    (folder / GRAPH_FILE).write_bytes(content)
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    manifest["files"][GRAPH_FILE] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


def spoilt(folder: Path, factor: float = np.nan) -> None:
    """A bundle whose files are all as its manifest says, and whose model says something else, or NaN."""
    graph = onnx.load(str(folder / GRAPH_FILE))
    for weights in graph.graph.initializer:
        if weights.data_type == onnx.TensorProto.FLOAT and len(weights.dims) == 2:
            weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(factor), weights.name))
    no_graph(folder, graph.SerializeToString())


def test_new_weights_of_the_same_pipeline_are_served(service: Service) -> None:
    before = {result["index"]: result["relevance_score"] for result in service.rank()["results"]}
    spoilt(service.folder / "first", 0.5)
    assert service.reload()["loaded"] == ["first"]
    after = {result["index"]: result["relevance_score"] for result in service.rank()["results"]}
    assert after != pytest.approx(before, abs=0.01)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (damaged, "model.onnx: has 700 bytes where bundle.json says"),
        (no_graph, "ONNX Runtime cannot load it"),
        (spoilt, "cannot be warmed up"),
    ],
)
def test_a_bad_bundle_leaves_the_old_ones_served(
    service: Service, spoil: Callable[[Path], object], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Other new bundles are not served either: all change at once, or none."""
    before, models, failed = service.rank(), service.ranker.models, service.metric("reloads_total", outcome="failed")
    service.put("first", 96)
    service.put("second")
    spoil(service.folder / "second")
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        answer = service.reload(409)
    assert answer["error"]["type"] == "not_reloaded"
    assert answer["message"].startswith("not reloaded, nothing has changed: ")
    assert problem in answer["message"]
    (line,) = caplog.messages
    assert problem in line
    assert "\n" not in line
    assert service.ranker.models is models
    assert service.rank()["results"] == before["results"]
    assert service.client.get("/health/ready").status_code == 200
    assert service.metric("reloads_total", outcome="failed") == failed + 1
    assert 'model="second"' not in service.client.get("/metrics").text
    shutil.rmtree(service.folder / "second")
    assert service.reload()["loaded"] == ["first"], "a good one is taken after a bad one"
    assert service.budget() == 96


def test_no_request_is_lost_and_none_gets_something_between_the_two(service: Service) -> None:
    """Reloads under requests without a pause: each is answered by one bundle or by the other."""
    expected = {}
    for budget in (64, 128):
        service.put("first", budget)
        service.reload()
        expected[budget] = [(r["index"], pytest.approx(r["relevance_score"], abs=1e-4)) for r in service.rank()["results"]]
    over = threading.Event()
    seen: list[int] = []

    def ask() -> None:
        while not over.is_set():
            answer = service.rank()
            budget = answer["meta"]["tokens_per_document"]
            assert [(r["index"], r["relevance_score"]) for r in answer["results"]] == expected[budget]
            assert answer["meta"]["warnings"] == []
            seen.append(budget)

    with ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(ask) for _ in range(2)]
        try:
            for budget in (64, 128):
                service.put("first", budget)
                assert service.reload()["loaded"] == ["first"]
        finally:
            over.set()
        for client in clients:
            client.result(PATIENCE)
    assert set(seen) == {64, 128}
    assert not service.ranker.worker.jobs()


def test_a_request_ends_with_the_model_that_it_began_with(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is prepared, but its model is no longer served when it is to be scored."""
    (old,) = service.ranker.models
    expected = service.rank()["results"]
    prepared, go_on = threading.Event(), threading.Event()
    score = old.scorer.score_documents

    async def later(*arguments: Any, **named: Any) -> Any:
        prepared.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
        return await score(*arguments, **named)

    monkeypatch.setattr(old.scorer, "score_documents", later)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.rank)
        assert prepared.wait(PATIENCE)
        service.put("first", 64)
        service.reload()
        assert service.budget() == 64
        go_on.set()
        answer = waiting.result(PATIENCE)
    assert (answer["results"], answer["meta"]["tokens_per_document"]) == (expected, 128)


def test_nothing_is_left_of_what_was_served(service: Service) -> None:
    """Without a garbage collection: the memory of a graph is large, and the collector does not see it."""
    gc.disable()
    try:
        service.rank()
        (model,) = service.ranker.models
        left = [weakref.ref(model), weakref.ref(model.scorer.ranker.graph), weakref.ref(model.bundle.pipeline)]
        del model
        service.put("first", 64)
        assert service.reload()["loaded"] == ["first"]
        wait_for(lambda: all(one() is None for one in left))
    finally:
        gc.enable()


def test_requests_for_a_reload_during_one_share_the_next(service: Service) -> None:
    """Of many that ask at once the first has its own, and all others share one, which sees what was put before they asked."""
    begun, go_on, reads = threading.Event(), threading.Event(), []

    def slowly(settings: Settings) -> list[Bundle]:
        reads.append(settings)
        bundles = read_bundles(settings)
        begun.set()
        assert go_on.wait(PATIENCE)
        return bundles

    async def work() -> None:
        reloader = Reloader(service.ranker, KEYLESS, read=slowly)
        first = asyncio.create_task(reloader.reload())
        await asyncio.to_thread(begun.wait, PATIENCE)
        service.put("second")
        others = [asyncio.create_task(reloader.reload()) for _ in range(4)]
        await asyncio.to_thread(service.rank)
        go_on.set()
        assert (await first).models == ["first"]
        assert [one.models for one in await asyncio.gather(*others)] == [["first", "second"]] * 4
        reloader.close()

    asyncio.run(work())
    assert len(reads) == 2


def test_a_reload_that_fails_and_that_nobody_waits_for_is_logged_once(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    def nothing(_settings: Settings) -> list[Bundle]:
        raise BundleError("its files have changed")

    async def work() -> None:
        reloader = Reloader(service.ranker, KEYLESS, read=nothing)
        task = asyncio.create_task(reloader.reload())
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(PATIENCE):
            while reloader._tasks:
                await asyncio.sleep(0.01)
        reloader.close()

    asyncio.run(work())
    gc.collect()
    problems = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert problems == ["not reloaded, nothing has changed: its files have changed"]


def test_a_service_that_stops_ends_a_reload_and_the_next(
    settings: Settings, bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another(bundle_path, tmp_path / "first", "first")
    ranker = Ranker.load(settings.model_copy(update={"bundle": (tmp_path,)}))
    monkeypatch.setattr(Worker, "_warm_up", lambda self: self._changed.acquire() and self._changed.release())

    async def work() -> None:
        ranker.start()
        reloader = Reloader(ranker, KEYLESS)
        another(bundle_path, tmp_path / "second", "second")
        task = asyncio.create_task(reloader.reload())
        async with asyncio.timeout(PATIENCE):
            while len(ranker.worker._warm_ups) < 2:
                await asyncio.sleep(0.01)
        following = asyncio.create_task(reloader.reload())
        await asyncio.sleep(0.01)
        ranker.worker.close()
        reloader.close()
        for waiting, why in ((task, "not running"), (following, "the service is ending")):
            with pytest.raises(ReloadError, match=why):
                await waiting

    asyncio.run(work())
    ranker.close()


def test_keys_are_read_again_and_bad_ones_leave_the_old_in_force(settings: Settings, tmp_path: Path) -> None:
    file, old, new = tmp_path / "keys.jsonl", make("old", ["rank", "admin"]), make("new", ["rank", "admin"])
    file.write_text(old.entry)

    def ask(key: New, path: str = "/rerank") -> Any:
        return client.post(path, json=REQUEST, headers={"authorization": f"Bearer {key.secret}"})

    with warm(settings.model_copy(update={"api_keys_file": file})) as client:
        file.write_text(f"{old.entry}\n{new.entry}\n")
        assert (ask(old).status_code, ask(new).status_code) == (200, 401), "until it is asked for"
        assert ask(old, "/admin/reload").json()["keys"] == ["old", "new"]
        assert (ask(old).status_code, ask(new).status_code) == (200, 200)
        file.write_text(new.entry)
        assert ask(new, "/admin/reload").json()["keys"] == ["new"]
        assert (ask(old).status_code, ask(new).status_code) == (401, 200)
        for bad in ("", f"{new.entry}\n{{cut", f"{new.entry}\n{new.entry}", None):
            if bad is None:
                file.unlink()
            else:
                file.write_text(bad)
            refused = ask(new, "/admin/reload")
            assert (refused.status_code, refused.json()["error"]["type"]) == (409, "not_reloaded")
            assert str(file) in refused.json()["message"]
            assert (ask(old).status_code, ask(new).status_code, client.get("/info").status_code) == (401, 200, 401)
