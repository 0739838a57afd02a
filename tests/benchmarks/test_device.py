import json
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from benchmarks.device.__main__ import Measured, held, main, milliseconds, parser, write_bodies
from benchmarks.device.engine import engine_alone
from benchmarks.device.ledger import PATH, STEPS, Ledger
from benchmarks.device.processes import CALLS, LEDGERS, REST, ledgers, merged
from benchmarks.device.session import LAUNCH, LENGTH, RATE, SimulatedDevice
from benchmarks.performance.service import Service
from keyblock.bundle import load_bundle
from service.app import create_app
from service.engine.instance import Graphs
from service.settings import DEFAULT_BUNDLE, Settings
from tests.service.faults import wait_for
from tests.service.rankers import serving


def test_a_batch_takes_the_devices_time() -> None:
    """32 rows of 128 tokens at 25,000 a second are 1.28 ms, and the launch 0.1; rows of 64 tokens are half of it."""
    device = SimulatedDevice(25_000, 1e-4)
    assert device.seconds(32, 128) == pytest.approx(1.38e-3)
    assert device.seconds(32, 64) == pytest.approx(0.74e-3)


def test_it_tells_rows_apart_and_keeps_count() -> None:
    device = SimulatedDevice(1e6, 0.0)
    ids = np.arange(12, dtype=np.int64).reshape(3, 4)
    logits = device.score(ids, np.zeros_like(ids), np.ones_like(ids))
    assert (logits.shape, logits.dtype, len(set(logits.tolist()))) == ((3,), np.float32, 3)
    device.score(ids, np.zeros_like(ids), np.ones_like(ids))
    assert device.batches == 2
    assert device.busy == pytest.approx(2 * device.seconds(3, 4))
    assert device.waited >= device.busy


def test_others_work_while_it_computes() -> None:
    ids, turns = np.ones((1, 4), np.int64), 0
    for seconds in (0.2, 2.0, 20.0):  # more where this thread was away for as long
        thread = threading.Thread(target=SimulatedDevice(1e9, seconds).score, args=(ids, ids, ids))
        thread.start()
        while thread.is_alive():
            turns += 1
        if turns > 1:
            break
    assert turns > 1


def test_the_service_answers_in_front_of_it_and_its_ledger_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(bundle=(DEFAULT_BUNDLE,), threads=2, token_cap=1024)
    for owner, name in STEPS.values():
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    device = SimulatedDevice(1e6, 0.0)
    ledger = Ledger(device)
    ledger.watch()
    app = create_app(settings, serving(settings, Graphs(device)))
    app.router.routes.insert(0, Route(PATH, ledger.respond))
    with TestClient(app) as client:
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        before = client.get(PATH).json()
        answer = client.post("/rerank", json={"query": "river", "documents": ["the river rose", "a stone"] * 4}).json()
        after = client.get(PATH).json()
    assert len(answer["results"]) == 8
    assert after["device"]["batches"] > before["device"]["batches"]
    assert after["steps"]["preparation"]["cpu"] > before["steps"].get("preparation", {"cpu": 0.0})["cpu"]
    assert after["steps"]["selection and packing"]["wall"] > 0
    assert {"preparing threads", "JSON", "model's thread"} <= after["threads"].keys()


def test_the_engine_alone_feeds_every_sequence_once() -> None:
    device = SimulatedDevice(1e7, 0.0)
    fed = engine_alone(load_bundle(DEFAULT_BUNDLE), device, 1024, sequences=40, job_size=10)
    assert device.batches > 40 * LENGTH / 1024
    assert 0 < fed.busy <= fed.given <= 1
    assert fed.host > 0


def test_without_threads_the_models_thread_alone_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(parser().parse_args(["--threads", "--rate", "1e6", "--json", str(tmp_path / "found.json")]))
    assert "the model's thread alone: " in capsys.readouterr().out
    assert json.loads((tmp_path / "found.json").read_text())["served"] == []


def test_requests_by_id_are_those_with_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.device.__main__.BODIES", 2)
    paths = write_bodies(tmp_path, 3, 50)
    new, by_id = ([json.loads(path.read_text()) for path in paths[way]] for way in ("new", "by id"))
    assert [[one["id"] for one in body["documents"]] for body in new] == [["0-0", "0-1", "0-2"], ["1-0", "1-1", "1-2"]]
    assert [body["documents"] for body in by_id] == [[{"id": one["id"]} for one in body["documents"]] for body in new]
    assert len({one["text"] for body in new for one in body["documents"]}) == 6


def test_what_held_the_lock() -> None:
    """Of ten samples at work, five saw it held: four in `b`, whoever called it."""
    holding = "main (x.py);a (x.py);b (x.py) 3\nmain (x.py);b (x.py) 1\nmain (x.py);c (x.py) 1\n"
    assert held(holding, holding + "main (x.py);read (x.py) 5\n") == (0.5, ["80.0% b (x.py)", "20.0% c (x.py)"])


def test_what_cores_allow() -> None:
    """2 ms a document, 1 of them under the lock: one core 500 a second, from two on 1,000."""
    one = Measured("new", 2, 500.0, 0.02, 0.02, {"event loop": 0.5, "preparing threads": 1.5}, {}, {}, 0.1, locked=0.5)
    assert (one.total, one.under_lock) == (2.0, 1.0)
    assert [one.reachable(cores) for cores in (1, 2, 8)] == [500, 1000, 1000]


def test_time_a_document() -> None:
    assert milliseconds({"a": 1.0}, {"a": 1.5, "b": 0.1}, 100) == pytest.approx({"a": 5.0, "b": 1.0})


def test_processes_have_one_ledger() -> None:
    """Two fronts, and a model's process whose calls are told apart from their event loops; their idle model threads are none."""
    fronts = [
        {"threads": {"event loop": 1.0, "model's thread": 0.1}, "cpu": 3.0, "steps": {"decoding": {"cpu": 0.5, "wall": 1.0}}}
        for _ in range(2)
    ]
    device = {"busy": 2.0}
    model = {"at": 7.0, "threads": {"event loop": 0.25, "model's thread": 0.5}, "cpu": 1.0, "steps": {}, "device": device}
    sums = merged(fronts, model)
    assert sums["threads"] == {"event loop": 2.0, CALLS: 0.25, "model's thread": 0.5, REST: 0.25}
    assert sums["steps"] == {"decoding": {"cpu": 1.0, "wall": 2.0}}
    assert (sums["at"], sums["cpu"], sums["device"]) == (7.0, 7.0, device)


def test_what_the_model_s_process_takes_is_taken_in_turn() -> None:
    spent = {"event loop": 0.5, "preparing threads": 1.5, CALLS: 0.01, "model's thread": 0.02, REST: 0.01}
    assert Measured("new", 2, 500.0, 0.02, 0.02, spent, {}, {}, 0.1, processes=2).of_model == pytest.approx(0.04)


def test_several_processes_serve_in_front_of_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {RATE: "1e6", LAUNCH: "0", LEDGERS: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    command = (sys.executable, "-m", "benchmarks.device.serving")
    with Service(2, tmp_path / "log", command, bundle=DEFAULT_BUNDLE, token_cap=1024, processes=2) as service:
        before = ledgers(service.process.pid, tmp_path)
        body = {"query": "river", "documents": ["the river rose", "a stone"] * 4}
        answer = httpx.post(f"{service.url}/rerank", json=body, timeout=60).raise_for_status().json()
        after = ledgers(service.process.pid, tmp_path)
    assert len(answer["results"]) == 8
    assert after["device"]["batches"] > before["device"]["batches"]
    assert after["steps"]["preparation"]["cpu"] > 0
    assert after["threads"][CALLS] > before["threads"][CALLS]
