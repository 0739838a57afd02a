"""Peers without peers: a worker that speaks the protocol, environments that cannot be made, processes that end."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.performance import peers
from benchmarks.performance.peers import PEERS, TORCH, Environment, PeerError, Worker, python_of, run_pip, threads_environment
from tests.support.texts import Request

PYTHON = Path(sys.executable)
REQUEST = Request("a query", ["one", "two"], 0)
WORKER = """
    import json, sys
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["query"] == "die":
            sys.exit("it broke")
        scores = [] if asked.get("tokenize") else [len(text) / 10 for text in asked["documents"]]
        print(json.dumps({"seconds": 0.5, "scores": scores}), flush=True)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the place of peer_worker.py."""
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER), encoding="utf-8")
    monkeypatch.setattr(peers, "WORKER", script)
    return script


def test_a_worker_answers_requests(worker: Path, tmp_path: Path) -> None:
    running = Worker(PYTHON, "any", tmp_path, 1, tmp_path / "log")
    try:
        answer = running.rank(REQUEST)
        assert (answer.seconds, answer.scores, answer.stages) == (0.5, [0.3, 0.3], {})
        assert running.tokenize(REQUEST) == 0.5
    finally:
        running.stop()


def test_a_worker_that_ends_says_why(worker: Path, tmp_path: Path) -> None:
    running = Worker(PYTHON, "any", tmp_path, 1, tmp_path / "log")
    try:
        for _ in range(2):
            with pytest.raises(PeerError, match="it ended: it broke"):
                running.rank(REQUEST._replace(query="die"))
    finally:
        running.stop()


def test_a_worker_that_does_not_start_says_why(worker: Path, tmp_path: Path) -> None:
    worker.write_text("raise SystemExit('no such library')", encoding="utf-8")
    with pytest.raises(PeerError, match="it ended: no such library"):
        Worker(PYTHON, "any", tmp_path, 1, tmp_path / "log")


def test_pip_that_fails_is_one_line() -> None:
    with pytest.raises(PeerError, match="pip ended with 1: ERROR: no such package"):
        run_pip([sys.executable, "-c", "import sys; sys.exit('WARNING: x\\nERROR: no such package\\nhint')"])


def test_an_environment_is_made_once_for_the_same_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(peers, "run_pip", ran.append)
    monkeypatch.setattr(peers.venv, "create", lambda folder, **_: folder.mkdir(parents=True))
    one = Environment("one", ("a==1", TORCH), without=("b",))
    for _ in range(2):
        assert python_of(one, tmp_path) == tmp_path / "one" / "bin" / "python"
    assert [command[5:] for command in ran] == [["install", "a==1", TORCH], ["uninstall", "--yes", "b"]]
    python_of(Environment("one", ("a==2", TORCH)), tmp_path)
    assert ran[-1][5:] == ["install", "a==2", TORCH]


def test_a_failed_installation_is_not_taken_for_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> None:
        raise PeerError("pip ended with 1")

    monkeypatch.setattr(peers.venv, "create", lambda folder, **_: folder.mkdir(parents=True))
    monkeypatch.setattr(peers, "run_pip", fail)
    for _ in range(2):
        with pytest.raises(PeerError):
            python_of(Environment("one", ("a",)), tmp_path)


def test_every_environment_pins_torch_and_every_kind_is_known() -> None:
    script = (Path(peers.__file__).parent / "peer_worker.py").read_text(encoding="utf-8")
    assert all(TORCH in peer.environment.packages for peer in PEERS)
    assert all(f'"{peer.kind}": ' in script for peer in PEERS if peer.kind)
    assert len({peer.key for peer in PEERS}) == len({peer.name for peer in PEERS}) == len(PEERS)


def test_threads_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    environment = threads_environment(3)
    assert environment["OMP_NUM_THREADS"] == environment["RAYON_NUM_THREADS"] == "3"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert "PYTHONPATH" not in environment
    assert json.dumps(environment)
