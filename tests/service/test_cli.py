"""keyblock-serve as a process: a real server on a real port."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from service import cli
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.start import load_once
from tests.service.faults import PATIENCE, wait_for
from tests.service.rankers import another
from tests.support.forks import Forks
from tests.support.ports import free_port, wait_ready

GOOD = json.dumps({"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}).encode()
LIMIT = 20_000_000


Fork = Callable[[Sequence[str], dict[str, str]], tuple[int, str]]


@pytest.fixture(scope="module")
def fork() -> Iterator[Fork]:
    """Exit code and stderr of keyblock-serve with these arguments and variables, where it does not start."""
    with Forks("service.cli", "service.start") as forks:

        def run(arguments: Sequence[str], variables: dict[str, str]) -> tuple[int, str]:
            finished = forks.run("service.cli", arguments, os.environ | {"KEYBLOCK_PORT": "0"} | variables, Path.cwd())
            return finished.returncode, finished.stderr.decode()

        yield run


@contextmanager
def running(*arguments: str, under: Sequence[str] = (), **options: Any) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """keyblock-serve with these arguments, and its port."""
    port = free_port()
    command = [*under, sys.executable, "-m", "service.cli", "--port", str(port), "--provider=cpu", *arguments]
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            wait_ready(port)
            yield process, port
        finally:
            process.kill()


def post(port: int, body: bytes) -> tuple[int, Any]:
    answer = httpx.post(f"http://127.0.0.1:{port}/rerank", content=body, timeout=PATIENCE)
    return answer.status_code, answer.json()


def metrics(port: int) -> bytes:
    return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).content


def test_a_413_is_seen_and_sigterm_finishes_what_is_in_flight_and_exits_0(bundle_path: Path) -> None:
    """Configured by flags and by the environment; the client sends all of its body before it reads."""
    environment = os.environ | {"KEYBLOCK_BUNDLE": str(bundle_path), "KEYBLOCK_MAX_BODY_BYTES": str(LIMIT)}
    with running(env=environment, stderr=subprocess.PIPE) as (process, port):
        status, answer = post(port, GOOD.ljust(LIMIT + 1_000_000))
        assert (status, answer["error"]["type"]) == (413, "too_large")
        body = json.dumps({"query": "river", "documents": [f"{n} river bridge. " * 5000 for n in range(60)]}).encode()
        answers: list[tuple[int, Any]] = []
        client = threading.Thread(target=lambda: answers.append(post(port, body)))
        client.start()
        wait_for(lambda: b"keyblock_in_flight_requests 1.0" in metrics(port))
        process.send_signal(signal.SIGTERM)
        client.join(PATIENCE)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert [(status, len(answer["results"])) for status, answer in answers] == [(200, 60)]
    assert "Traceback" not in errors


def reloads(metrics: bytes) -> float:
    """Of all outcomes."""
    return sum(float(line.split()[-1]) for line in metrics.splitlines() if line.startswith(b"keyblock_reloads_total"))


def budget(port: int, model: str | None = None) -> int:
    """The value that distinguishes the bundles of these tests."""
    status, answer = post(port, json.dumps(json.loads(GOOD) | {"model": model}).encode())
    assert status == 200
    return int(answer["meta"]["tokens_per_document"])


def test_several_bundles_and_a_reload_by_sighup(bundle_path: Path, tmp_path: Path) -> None:
    def put_bundle(place: str, name: str, tokens: int) -> None:
        another(bundle_path, tmp_path / place, name, packing={"budget": tokens, "budget_range": (64, 256)})

    put_bundle("default", "one", 64)
    put_bundle("two", "two", 96)
    with running("--bundle", str(tmp_path), "--bundle", str(bundle_path), stderr=subprocess.PIPE) as (process, port):
        assert [budget(port, name) for name in (None, "one", "two", "tiny")] == [64, 64, 96, 128]
        put_bundle("default", "one", 192)
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: budget(port) == 192)
        (tmp_path / "default" / "bundle.json").write_text("garbage")
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: b'keyblock_reloads_total{outcome="failed"} 1.0' in metrics(port))
        assert [budget(port, name) for name in ("one", "two", "tiny")] == [192, 96, 128]
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in log
    (line,) = (line for line in log.splitlines() if " ERROR " in line)
    assert "not reloaded, nothing has changed: " in line
    assert "bundle.json: not JSON" in line


IN_A_TERMINAL = """import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])"""


@pytest.fixture
def terminal() -> Iterator[tuple[Callable[[], None], int]]:
    """What closes a terminal, and its side for programs."""
    ours, theirs = os.openpty()
    yield lambda: os.close(ours), theirs
    os.close(theirs)


def test_a_terminal_that_is_closed_ends_it_as_ever(bundle_path: Path, terminal: tuple[Callable[[], None], int]) -> None:
    """SIGHUP asks for a reload where somebody sends it; the terminal sends it too, when it is closed."""
    close, side = terminal
    under, streams = [sys.executable, "-c", IN_A_TERMINAL], dict.fromkeys(("stdin", "stdout", "stderr"), side)
    with running("--bundle", str(bundle_path), under=under, **streams) as (process, port):
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: b'keyblock_reloads_total{outcome="unchanged"} 1.0' in metrics(port))
        close()
        assert process.wait(PATIENCE) == 0


def test_nohup_outlives_the_terminal_and_is_reloaded_by_sighup_as_ever(
    bundle_path: Path, terminal: tuple[Callable[[], None], int]
) -> None:
    close, side = terminal
    under = [sys.executable, "-c", IN_A_TERMINAL, "/usr/bin/env", "nohup"]
    streams = {"stdin": side, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running("--bundle", str(bundle_path), under=under, **streams) as (process, port):
        close()
        for _ in range(2):  # the terminal's own may have come as well
            before = metrics(port)
            process.send_signal(signal.SIGHUP)
            wait_for(lambda before=before: reloads(metrics(port)) > reloads(before))  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("arguments", "environment", "problem"),
    [
        (["--bundle", "no/such/bundle"], {}, "no/such/bundle: does not exist"),
        ([], {"KEYBLOCK_BUNDLE": "no/such/bundle"}, "no/such/bundle: does not exist"),
        (["--provider", "cuda"], {}, "provider cuda was asked for"),
        ([], {"KEYBLOCK_PORT": "many"}, "and it is 'many' (KEYBLOCK_PORT)"),
        (["--max-documents", "0"], {}, "--max-documents: "),
        (["--store", "/dev/null/store"], {}, "/dev/null/store: cannot be used as a store (Not a directory); give a directory"),
        ([], {"KEYBLOCK_STORE": "redis://localhost:many"}, "the store's URL is not one of Redis"),
        (["--api-keys", "hunter2"], {}, "api_keys, line 1: is not JSON; keyblock-key prints what belongs there"),
        ([], {"KEYBLOCK_API_KEYS_FILE": "no/such/file"}, "no/such/file: cannot be read as a file of API keys"),
        (["--cors-origins", "a.example"], {}, "--cors-origins: "),
        ([], {"KEYBLOCK_STORE_KEY": "hunter2"}, "--store-key: has 7 characters and needs 32: make one with `openssl rand -hex 32`"),
        (["--admin-port", "0", "--admin-host", "192.0.2.1"], {}, "cannot listen on 192.0.2.1, port 0"),
    ],
)
def test_a_bad_start_is_one_line_and_exit_code_2(
    fork: Fork, bundle_path: Path, arguments: list[str], environment: dict[str, str], problem: str
) -> None:
    code, said = fork(arguments, {"KEYBLOCK_BUNDLE": str(bundle_path)} | environment)
    assert code == 2
    (line,) = (line for line in said.splitlines() if " INFO " not in line)  # the bundle may have been opened before
    assert line.startswith("keyblock-serve: ")
    assert problem in line
    assert "hunter2" not in said


def test_ports_that_cannot_be_are_found_before_a_model_is_loaded(fork: Fork) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        port = str(free_port())
        code, said = fork(["--port", port, "--admin-port", port, "--admin-host", host], {})
        problem = f"--admin-port is {port}, which is --port too: give operators a port of their own"
        assert (code, said) == (2, f"keyblock-serve: {problem}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = fork(["--port", str(port), "--bundle", "no/such/bundle"], {})
    problem = f"cannot listen on 127.0.0.1, port {port} (Address already in use): give another --host or --port\n"
    assert (code, said) == (2, f"keyblock-serve: {problem}")


def test_the_garbage_collector_does_not_look_at_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranker, "load", lambda settings: (settings.port, gc.isenabled()))
    assert load_once(Settings(port=7)) == (7, False)
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


def test_numpy_comes_after_the_number_of_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, service.cli; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setitem(sys.modules, "service.start", SimpleNamespace(start=lambda _: os.environ["OPENBLAS_NUM_THREADS"]))
    assert cli.main([]) == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert cli.main([]) == "2", "whoever sets it is listened to"


def test_an_unknown_variable_is_reported_with_the_nearest_known_one(fork: Fork) -> None:
    _, said = fork([], {"KEYBLOCK_PROVIDRE": "cpu", "KEYBLOCK_BUNDLE": "no/such/bundle"})
    warning, *_, error = said.splitlines()  # where nothing is compiled, that is said between
    assert warning.endswith("KEYBLOCK_PROVIDRE is no setting, and is ignored: did you mean KEYBLOCK_PROVIDER?")
    assert "no/such/bundle" in error
