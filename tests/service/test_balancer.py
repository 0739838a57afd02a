"""The balancer of examples/balancer, a real nginx: clients do not see a replica go."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.conftest import ROOT
from tests.service.faults import wait_for
from tests.support.ports import free_port
from tests.support.programs import need

PLACES = 3
MAIN = """daemon off;
user root; # where root starts it, its workers may read what lies in root's folder; else it means nothing
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    log_format asked '$upstream_status';
    access_log {folder}/access.log asked;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}}
"""


class Balancer(NamedTuple):
    """A running nginx with the example's configuration: its address, its log, and the ports of the replicas."""

    url: str
    log: Path
    places: list[int]


@pytest.fixture
def balancer(tmp_path: Path) -> Iterator[Balancer]:
    need("nginx", "nginx-light")
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
    assert nginx is not None
    port, *places = (free_port() for _ in range(1 + PLACES))
    ports = {f"127.0.0.1:{8000 + n}": f"127.0.0.1:{own}" for n, own in enumerate([port, *places])}
    example = (ROOT / "examples" / "balancer" / "nginx.conf").read_text(encoding="utf-8")
    site = re.sub(r"127\.0\.0\.1:800\d", lambda found: ports[found[0]], example)
    (tmp_path / "nginx.conf").write_text(MAIN.format(folder=tmp_path, site=site), encoding="utf-8")
    command = [nginx, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_for((tmp_path / "nginx.pid").exists)
        yield Balancer(f"http://127.0.0.1:{port}/rerank", tmp_path / "access.log", places)
        process.terminate()


@contextmanager
def replica(port: int, status: int | None) -> Iterator[list[int]]:
    """Answers POST with a status, or hangs up once it has read the body: the lengths of the bodies."""
    bodies: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(len(self.rfile.read(int(self.headers["content-length"]))))
            if status is not None:
                self.send_response(status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield bodies
        server.shutdown()


@pytest.mark.parametrize("status", [None, 503], ids=["dies", "warms up"])
def test_a_client_does_not_see_a_replica_that(status: int | None, balancer: Balancer) -> None:
    """One place is empty, one replica dies with a body of 2 MB in its hands or is not ready, one answers."""
    body = b"a" * 2_000_000
    with replica(balancer.places[0], status) as troubled, replica(balancer.places[1], 200) as well:
        answers = [httpx.post(balancer.url, content=body).status_code for _ in range(6)]
        assert answers == [200] * 6
        assert len(troubled) >= 1
        assert well == [len(body)] * 6
        wait_for(lambda: "," in balancer.log.read_text(encoding="utf-8"))  # it asked more than one replica


def test_another_error_is_passed_on(balancer: Balancer) -> None:
    """429 says when to come back, and 500 belongs to the request: neither is tried on all replicas."""
    first, second, third = balancer.places
    with replica(first, 429) as one, replica(second, 429) as two, replica(third, 429) as three:
        assert httpx.post(balancer.url, content=b"{}").status_code == 429
        assert len(one + two + three) == 1
