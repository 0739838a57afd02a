"""The admin port beside the main one, and what the process writes: both seen from outside."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI

from service.http.sockets import ListenError, Main, allow_files, bind
from tests.service.faults import PATIENCE
from tests.service.keyed import ALL, bearing
from tests.support.ports import free_port, wait_ready

GOOD = json.dumps({"query": "confidential question", "documents": ["confidential text", "a city"]}).encode()
PASSWORD = "hunter2"


def ask(port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Process:
    """keyblock-serve with keys, an admin port, a store that is away, and JSON lines at the level of most."""

    def __init__(self, bundle: Path, keys: Path) -> None:
        self.port, self.admin_port = free_port(), free_port()
        keys.write_text("\n".join(new.entry for new in ALL.values()))
        flags = {"--port": self.port, "--admin-port": self.admin_port, "--bundle": bundle, "--api-keys-file": keys}
        flags |= {"--provider": "cpu", "--log-format": "json", "--log-level": "debug"}
        command = [sys.executable, "-m", "service.cli", "--access-log", *(str(part) for flag in flags.items() for part in flag)]
        environment = os.environ | {"KEYBLOCK_STORE": f"redis://user:{PASSWORD}@127.0.0.1:1/0"}
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def stop(self) -> list[str]:
        """The lines of its log."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=PATIENCE)
        return log.splitlines()


@pytest.fixture
def served(bundle_path: Path, tmp_path: Path) -> Iterator[Process]:
    served = Process(bundle_path, tmp_path / "keys.jsonl")
    try:
        wait_ready(served.port)
        yield served
    finally:
        served.process.kill()
        served.process.communicate()


def test_metrics_move_to_the_admin_port_and_nothing_secret_is_written(served: Process) -> None:
    shown = []
    for port, method, path, name, status in (
        (served.port, "POST", "/rerank", "alice", 200),
        (served.port, "POST", "/rerank", "ops", 403),
        (served.port, "POST", "/rerank", None, 401),
        (served.port, "GET", "/info", "alice", 200),
        (served.port, "GET", "/metrics", "ops", 404),
        (served.port, "GET", "/documents/danube", "alice", 503),
        (served.admin_port, "GET", "/metrics", None, 401),
        (served.admin_port, "GET", "/metrics", "alice", 403),
        (served.admin_port, "GET", "/metrics", "ops", 200),
        (served.admin_port, "POST", "/rerank", "alice", 404),
        (served.port, "POST", "/admin/reload", "ops", 404),
        (served.admin_port, "POST", "/admin/reload", "alice", 403),
        (served.admin_port, "POST", "/admin/reload", "ops", 200),
        (served.admin_port, "GET", "/health/ready", None, 200),
    ):
        answered, text = ask(port, method, path, GOOD if method == "POST" else None, {} if name is None else bearing(name))
        assert answered == status, (path, name, text)
        shown.append(text)
        moved = f"it has moved to the admin port (KEYBLOCK_ADMIN_PORT={served.admin_port})"
        assert (moved in text) == (port == served.port and status == 404)
    lines = served.stop()
    assert served.process.returncode == 0
    entries = [json.loads(line) for line in lines]
    logged = [one for one in entries if one["logger"] == "service.access"]
    requests = [(one["path"], one["status"], one.get("key"), one.get("denied")) for one in logged]
    for expected in (
        ("/rerank", 200, "alice", None),
        ("/rerank", 403, "ops", "scope"),
        ("/rerank", 401, None, "no_key"),
        ("/metrics", 200, "ops", None),
    ):
        assert expected in requests
    for secret in (
        PASSWORD,
        "confidential",
        *(part for new in ALL.values() for part in (new.secret, json.loads(new.entry)["sha256"])),
    ):
        assert secret not in "".join([*lines, *(text for text in shown)])


def test_help_shows_no_secret_of_the_environment(tmp_path: Path) -> None:
    secret = next(iter(ALL.values())).entry
    environment = os.environ | {"KEYBLOCK_API_KEYS": secret, "KEYBLOCK_STORE": f"redis://:{PASSWORD}@localhost/0"}
    command = [sys.executable, "-m", "service.cli", "--help"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "--api-keys" in shown.stdout
    for part in (PASSWORD, json.loads(secret)["sha256"]):
        assert part not in shown.stdout + shown.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_every_address_of_a_host_is_bound_and_does_not_listen_yet(host: str) -> None:
    bound = bind(host, 0)
    addresses = {one.getsockname()[:1] for one in bound}
    assert (
        len(addresses) == len(bound) == len({info[4][:1] for info in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)})
    )
    (port,) = {one.getsockname()[1] for one in bound if one.family == socket.AF_INET}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    for one in bound:
        one.close()


def test_an_address_that_is_found_twice_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if two lines of /etc/hosts name localhost; the second socket would find the port taken by the first."""
    found = socket.getaddrinfo("127.0.0.1", 0, type=socket.SOCK_STREAM) * 2
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with bound_at("localhost", 0) as ours:
        assert len(ours) == 1


@pytest.mark.parametrize("host", ["..", 64 * "a"])
def test_an_invalid_host_name_is_one_line(host: str) -> None:
    with pytest.raises(ListenError, match=r"cannot listen on .*, port 0 \(no host can have such a name\): give another --host"):
        bind(host, 0)


@contextmanager
def bound_at(host: str, port: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as held:
        yield [held.enter_context(one) for one in bind(host, port)]


def test_another_process_that_listens_first_ends_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """Two may bind a port; the first to listen has it."""
    (ours,) = bind("127.0.0.1", 0)
    (theirs,) = bind("127.0.0.1", ours.getsockname()[1])
    with theirs:
        theirs.listen()
        with pytest.raises(SystemExit) as ended:
            Main(uvicorn.Config(FastAPI(), lifespan="off", log_config=None)).run(sockets=[ours])
    ours.close()
    assert ended.value.code == 3
    assert any("in use" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ((1024, 100_000), (8192, 100_000)),
        ((1024, 4096), (4096, 4096)),
        ((50_000, 100_000), (50_000, 100_000)),
        ((1024, resource.RLIM_INFINITY), (8192, resource.RLIM_INFINITY)),
    ],
)
def test_as_many_files_may_be_open_as_are_needed_and_allowed(
    limits: tuple[int, int], allowed: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: set_to[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: set_to.append(both))
    assert (allow_files(8192), set_to[-1]) == (allowed[0], allowed)


def test_a_process_with_few_files_serves_more_connections_than_it_has_files(bundle_path: Path) -> None:
    """300 of them are idle; without a bound, the 64th would take the last file."""
    port = free_port()
    command = ["bash", "-c", 'ulimit -n 128 && exec "$@"', "limited", sys.executable, "-m", "service.cli"]
    command += ["--port", str(port), "--bundle", str(bundle_path), "--provider", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    held: list[socket.socket] = []
    try:
        wait_ready(port)
        held += [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(300)]
        assert ask(port, "POST", "/rerank", GOOD)[0] == 200
        metrics = ask(port, "GET", "/metrics")[1]
        assert float(re.findall(r'^keyblock_closed_connections_total{why="crowded"} (.*)', metrics, re.MULTILINE)[0]) >= 300 - 64
    finally:
        for one in held:
            one.close()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    assert "max_connections is 64 instead of 4096, since 128 files may be open" in log
