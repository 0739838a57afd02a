"""Bundles that change under a running service."""

import asyncio
import gc
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

from keyblock.bundle import GRAPH_FILE, Bundle, BundleError, load_bundle, write_bundle
from service.app import create_app
from service.keys.keys import New, make
from service.queue.worker import Worker
from service.ranking.ranker import Ranker
from service.ranking.reload import Reloader, ReloadError
from service.settings import Settings
from tests.service.faults import PATIENCE, wait_for
from tests.service.rankers import another

REQUEST: dict[str, Any] = {
    "query": "which river flooded the old bridge",
    "documents": [f"Number {n}. " + "The river flooded the stone bridge. " * (n % 9) + "A city. " * n for n in range(12)],
    "raw_scores": True,
}
KEYLESS = State({"keyring": None})
BUDGETS = {"first": (64, 256), "second": (64, 192)}  # what tells the bundles apart


class Place:
    """A directory of bundles, as an operator has it, and the service of it."""

    def __init__(self, tiny: Path, folder: Path) -> None:
        self.tiny, self.folder = tiny, folder

    def put(self, name: str, folder: str = "", **parts: Any) -> None:
        """A bundle of this name takes the place of the one in the folder; parts of its pipeline tell it from others."""
        another(self.tiny, self.folder / (folder or name), name, **parts)


@pytest.fixture
def place(bundle_path: Path, tmp_path: Path) -> Place:
    place = Place(bundle_path, tmp_path / "bundles")
    place.put("first", packing={"budget": 128, "budget_range": BUDGETS["first"]})
    return place


class Service:
    """What is served from a place."""

    def __init__(self, client: TestClient, ranker: Ranker) -> None:
        self.client, self.ranker = client, ranker

    def reload(self, status: int = 200) -> dict[str, Any]:
        response = self.client.post("/admin/reload")
        assert response.status_code == status, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def rank(self, model: str | None = None) -> dict[str, Any]:
        response = self.client.post("/rerank", json={**REQUEST, "model": model})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def count(self, outcome: str) -> float:
        return self.ranker.metrics.registry.get_sample_value("keyblock_reloads_total", {"outcome": outcome}) or 0.0


@pytest.fixture
def service(place: Place, settings: Settings) -> Iterator[Service]:
    app = create_app(settings.model_copy(update={"bundle": (place.folder,)}))
    with TestClient(app) as client:
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        yield Service(client, app.state.ranker)


def test_a_new_bundle_is_served_and_one_that_is_gone_is_not(service: Service, place: Place) -> None:
    before = service.rank()
    place.put("second", packing={"budget": 64, "budget_range": BUDGETS["second"]})
    answer = service.reload()
    assert answer.pop("seconds") > 0
    assert answer == {"models": ["first", "second"], "loaded": ["second"], "removed": [], "keys": []}
    assert service.rank("first")["results"] == before["results"]
    assert service.rank("second")["meta"]["tokens_per_document"] == 64
    shutil.rmtree(place.folder / "first")
    assert service.reload()["removed"] == ["first"]
    assert service.rank("first")["model"] == "second"
    assert service.client.get("/info").json()["model"] == "second"
    build = [line for line in service.client.get("/metrics").text.splitlines() if line.startswith("keyblock_build_info{")]
    assert [('model="second"' in line, 'precision="fp32"' in line) for line in build] == [(True, True)]


def test_scores_of_a_bundle_are_forgotten_with_it(place: Place, settings: Settings) -> None:
    """A reload that changes nothing forgets no scores."""
    app = create_app(settings.model_copy(update={"bundle": (place.folder,), "score_cache_bytes": 1 << 20}))

    def kept() -> float:
        return app.state.ranker.metrics.registry.get_sample_value("keyblock_score_cache_bytes") or 0.0

    with TestClient(app) as client:
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        service = Service(client, app.state.ranker)
        service.rank()
        before = kept()
        assert before > 0
        service.reload()
        assert kept() == before
        place.put("first", packing={"budget": 96, "budget_range": BUDGETS["first"]})
        service.reload()
        assert kept() == 0


def damaged(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"garbage" * 100)


def not_numbers(folder: Path) -> None:
    """A bundle whose files are all as its manifest says, and whose model says NaN."""
    bundle = load_bundle(folder)
    graph = onnx.load(str(bundle.graph_path))
    for weights in graph.graph.initializer:
        if weights.data_type == onnx.TensorProto.FLOAT and len(weights.dims) == 2:
            weights.CopyFrom(numpy_helper.from_array(np.full(weights.dims, np.nan, np.float32), weights.name))
    onnx.save(graph, str(folder.parent / ".broken.onnx"))
    files = {name: folder / name for name in bundle.manifest.files} | {GRAPH_FILE: folder.parent / ".broken.onnx"}
    write_bundle(folder, bundle.manifest, files, overwrite=True)


def no_graph(folder: Path) -> None:
    """A bundle whose files are all as its manifest says, and whose graph is none."""
    bundle = load_bundle(folder)
    (folder.parent / ".broken.onnx").write_bytes(b"garbage")
    files = {name: folder / name for name in bundle.manifest.files} | {GRAPH_FILE: folder.parent / ".broken.onnx"}
    write_bundle(folder, bundle.manifest, files, overwrite=True)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "damaged": (damaged, "model.onnx: has 700 bytes where bundle.json says"),
    "a graph that is none": (no_graph, "ONNX Runtime cannot load it"),
    "a graph that says NaN": (not_numbers, "cannot be warmed up"),
    "of a name that is taken": (
        lambda folder: shutil.copytree(folder.parent / "first", folder, dirs_exist_ok=True),
        "is called 'first'",
    ),
    "gone": (lambda folder: shutil.rmtree(folder.parent), "does not exist"),
}


@pytest.mark.parametrize(("spoil", "problem"), BAD.values(), ids=BAD)
def test_a_bad_bundle_leaves_the_old_ones_served(
    service: Service, place: Place, spoil: Callable[[Path], object], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Other new bundles are not served either: all change at once, or none."""
    before, models = service.rank(), service.ranker.models
    place.put("first", packing={"budget": 96, "budget_range": BUDGETS["first"]})
    place.put("second")
    spoil(place.folder / "second")
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
    assert service.count("failed") == 1
    assert 'model="second"' not in service.client.get("/metrics").text
    shutil.rmtree(place.folder, ignore_errors=True)
    place.put("first", packing={"budget": 96, "budget_range": BUDGETS["first"]})
    assert service.reload()["loaded"] == ["first"], "a good one is taken after a bad one"
    assert service.rank()["meta"]["tokens_per_document"] == 96


def test_no_request_is_lost_and_none_gets_something_between_the_two(service: Service, place: Place) -> None:
    """Three reloads under requests without a pause: each is answered by one bundle or by the other."""
    expected = {}
    for budget in (64, 128):
        place.put("first", packing={"budget": budget, "budget_range": BUDGETS["first"]})
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
            for turn in range(3):
                place.put("first", packing={"budget": (64, 128)[turn % 2], "budget_range": BUDGETS["first"]})
                assert service.reload()["loaded"] == ["first"]
        finally:
            over.set()
        for client in clients:
            client.result(PATIENCE)
    assert set(seen) == {64, 128}
    assert not service.ranker.worker.jobs()


def test_a_request_ends_with_the_model_that_it_began_with(service: Service, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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
        place.put("first", packing={"budget": 64, "budget_range": BUDGETS["first"]})
        service.reload()
        assert service.rank()["meta"]["tokens_per_document"] == 64
        go_on.set()
        answer = waiting.result(PATIENCE)
    assert (answer["results"], answer["meta"]["tokens_per_document"]) == (expected, 128)


def test_nothing_is_left_of_what_was_served(service: Service, place: Place) -> None:
    """Without a garbage collection: the memory of a graph is large, and the collector does not see it."""
    gc.disable()
    try:
        for turn in range(2):
            service.rank()
            (model,) = service.ranker.models
            left = [weakref.ref(model), weakref.ref(model.scorer.ranker.graph), weakref.ref(model.bundle.pipeline)]
            del model
            place.put("first", packing={"budget": (64, 128)[turn % 2], "budget_range": BUDGETS["first"]})
            assert service.reload()["loaded"] == ["first"]
            wait_for(lambda left=left: all(one() is None for one in left))  # type: ignore[misc]
    finally:
        gc.enable()


def test_requests_for_a_reload_during_one_share_the_next(service: Service, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that ask at once the first has its own, and all others share one, which sees what was put before they asked."""
    begun, go_on = threading.Semaphore(0), threading.Event()
    load = Reloader._load

    def slowly(self: Reloader, *arguments: Any) -> Any:
        begun.release()
        assert go_on.wait(PATIENCE)
        return load(self, *arguments)

    monkeypatch.setattr(Reloader, "_load", slowly)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(service.reload)
        assert begun.acquire(timeout=PATIENCE)
        others = [pool.submit(service.reload) for _ in range(4)]
        place.put("second")
        reloader: Any = service.client.app.state.reloader  # type: ignore[attr-defined]
        wait_for(lambda: reloader._next is not None)
        assert service.rank()["model"] == "first"
        go_on.set()
        assert first.result(PATIENCE)["models"] == ["first", "second"]
        assert all(other.result(PATIENCE)["models"] == ["first", "second"] for other in others)
    assert service.count("ok") + service.count("unchanged") <= 5


def test_a_reload_that_fails_and_that_nobody_waits_for_is_logged_once(
    settings: Settings, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    ranker = Ranker.load(settings.model_copy(update={"bundle": (place.folder,)}))

    def nothing(_settings: Settings) -> list[Bundle]:
        raise BundleError("its files have changed")

    async def work() -> None:
        reloader = Reloader(ranker, KEYLESS, read=nothing)
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
    ranker.close()


def test_a_service_that_stops_ends_a_reload_and_the_next(settings: Settings, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = Ranker.load(settings.model_copy(update={"bundle": (place.folder,)}))
    monkeypatch.setattr(Worker, "_warm_up", lambda self: self._changed.acquire() and self._changed.release())

    async def work() -> None:
        ranker.start()
        reloader = Reloader(ranker, KEYLESS)
        place.put("second")
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
    app = create_app(settings.model_copy(update={"api_keys_file": file}))

    def ask(key: New, path: str = "/rerank") -> Any:
        return client.post(path, json=REQUEST, headers={"authorization": f"Bearer {key.secret}"})

    with TestClient(app) as client:
        service = Service(client, app.state.ranker)
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        file.write_text(f"{old.entry}\n{new.entry}\n")
        assert (ask(old).status_code, ask(new).status_code) == (200, 401), "until it is asked for"
        assert ask(old, "/admin/reload").json()["keys"] == ["old", "new"]
        assert (ask(old).status_code, ask(new).status_code) == (200, 200)
        file.write_text(new.entry)
        assert ask(new, "/admin/reload").json()["keys"] == ["new"]
        assert (ask(old).status_code, ask(new).status_code) == (401, 200)
        for bad in ("", f"{new.entry}\n{{cut", f"{new.entry}\n{new.entry}"):
            file.write_text(bad)
            refused = ask(new, "/admin/reload")
            assert (refused.status_code, refused.json()["error"]["type"]) == (409, "not_reloaded")
            assert str(file) in refused.json()["message"]
            assert (ask(old).status_code, ask(new).status_code, client.get("/info").status_code) == (401, 200, 401)
        file.unlink()
        assert ask(new, "/admin/reload").status_code == 409
        assert service.count("failed") == 4
