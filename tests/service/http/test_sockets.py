"""The admin port beside the main one, and what the process writes: both seen from outside."""

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from service.http.sockets import ListenError, Main, allow_files, bind
from tests.service.faults import PATIENCE
from tests.service.keyed import ALL, bearing
from tests.support.ports import free_port
from tests.support.serving import COMMAND, Service

GOOD = json.dumps({"query": "confidential question", "documents": ["confidential text", "a city"]}).encode()
PASSWORD = "hunter2"


def test_metrics_move_to_the_admin_port_and_nothing_secret_is_written(bundle_path: Path, tmp_path: Path) -> None:
    """The store is away, and the log is of JSON lines at the level of most."""
    keys, log, admin_port = tmp_path / "keys.jsonl", tmp_path / "log", free_port()
    keys.write_text("\n".join(new.entry for new in ALL.values()))
    options = {"bundle": bundle_path, "admin_port": admin_port, "api_keys_file": keys, "provider": "cpu"}
    options |= {"log_format": "json", "log_level": "debug", "access_log": True}
    served = Service(1, log, store=f"redis://user:{PASSWORD}@127.0.0.1:1/0", **options)
    shown = []
    for port, method, path, name, status in (
        (served.port, "POST", "/rerank", "alice", 200),
        (served.port, "POST", "/rerank", "ops", 403),
        (served.port, "POST", "/rerank", None, 401),
        (served.port, "GET", "/info", "alice", 200),
        (served.port, "GET", "/metrics", "ops", 404),
        (served.port, "GET", "/documents/danube", "alice", 503),
        (admin_port, "GET", "/metrics", None, 401),
        (admin_port, "GET", "/metrics", "alice", 403),
        (admin_port, "GET", "/metrics", "ops", 200),
        (admin_port, "POST", "/rerank", "alice", 404),
        (served.port, "POST", "/admin/reload", "ops", 404),
        (admin_port, "POST", "/admin/reload", "alice", 403),
        (admin_port, "POST", "/admin/reload", "ops", 200),
        (admin_port, "GET", "/health/ready", None, 200),
    ):
        content, headers = GOOD if method == "POST" else None, {} if name is None else bearing(name)
        answer = httpx.request(method, f"http://127.0.0.1:{port}{path}", content=content, headers=headers)
        assert answer.status_code == status, (path, name, answer.text)
        shown.append(answer.text)
        moved = f"it has moved to the admin port (KEYBLOCK_ADMIN_PORT={admin_port})"
        assert (moved in answer.text) == (port == served.port and status == 404)
    assert served.stop() == 0
    lines = log.read_text(encoding="utf-8").splitlines()
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
    secrets = [part for new in ALL.values() for part in (new.secret, json.loads(new.entry)["sha256"])]
    for secret in (PASSWORD, "confidential", *secrets):
        assert secret not in "".join([*lines, *shown])


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


def test_a_process_with_few_files_serves_more_connections_than_it_has_files(bundle_path: Path, tmp_path: Path) -> None:
    """300 of them are idle; without a bound, the 64th would take the last file."""
    log = tmp_path / "log"
    command = ["bash", "-c", 'ulimit -n 128 && exec "$@"', "limited", str(COMMAND)]
    with Service(1, log, command, bundle=bundle_path, provider="cpu") as service, ExitStack() as held:
        for _ in range(300):
            held.enter_context(socket.create_connection(("127.0.0.1", service.port), PATIENCE))
        assert httpx.post(f"{service.url}/rerank", content=GOOD).status_code == 200
        assert service.metric('keyblock_closed_connections_total{why="crowded"}') >= 300 - 64
    assert "max_connections is 64 instead of 4096, since 128 files may be open" in log.read_text(encoding="utf-8")
