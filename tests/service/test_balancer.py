"""The balancer of examples/balancer, a real nginx: clients do not see a replica go."""

import http.server
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.service.faults import wait_for
from tests.support.ports import free_port
from tests.support.programs import need

CONFIGURATION = ROOT / "examples" / "balancer" / "nginx.conf"
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


class Balancer:
    """A running nginx with the example's configuration on free ports; stopped when the `with` block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, *self.places = (free_port() for _ in range(1 + PLACES))
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder, site=self.site()), encoding="utf-8")
        self._process = subprocess.Popen([nginx(), "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)

    def site(self) -> str:
        """The example's configuration with this balancer's ports."""
        ports = {f"127.0.0.1:{8000 + n}": f"127.0.0.1:{port}" for n, port in enumerate([self.port, *self.places])}
        return re.sub(r"127\.0\.0\.1:800\d", lambda found: ports[found[0]], CONFIGURATION.read_text(encoding="utf-8"))

    def asked_again(self) -> int:
        """How many requests nginx sent to more than one replica."""
        return sum("," in line for line in (self._folder / "access.log").read_text(encoding="utf-8").splitlines())

    def __enter__(self) -> "Balancer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)


def nginx() -> str:
    need("nginx", "nginx-light")
    found = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
    assert found is not None
    return found


class StandIn(http.server.ThreadingHTTPServer):
    """Answers POST with a status, or hangs up once it has read the body."""

    def __init__(self, port: int, status: int | None) -> None:
        self.bodies: list[int] = []
        super().__init__(("127.0.0.1", port), handler(self, status))
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


def handler(stand_in: StandIn, status: int | None) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            stand_in.bodies.append(len(self.rfile.read(int(self.headers["content-length"]))))
            if status is not None:
                self.send_response(status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def balancer(tmp_path: Path) -> Iterator[Balancer]:
    with Balancer(tmp_path) as made:
        wait_for((tmp_path / "nginx.pid").exists)
        yield made


@pytest.mark.parametrize("status", [None, 503], ids=["dies", "warms up"])
def test_a_client_does_not_see_a_replica_that(status: int | None, balancer: Balancer) -> None:
    """One place is empty, one replica dies with a body of 2 MB in its hands or is not ready, one answers."""
    body = b"a" * 2_000_000
    with StandIn(balancer.places[0], status) as troubled, StandIn(balancer.places[1], 200) as well:
        answers = [httpx.post(f"http://127.0.0.1:{balancer.port}/rerank", content=body).status_code for _ in range(6)]
        assert answers == [200] * 6
        assert len(troubled.bodies) >= 1
        assert well.bodies == [len(body)] * 6
        wait_for(lambda: balancer.asked_again() >= 1)
        troubled.shutdown()
        well.shutdown()


def test_another_error_is_passed_on(balancer: Balancer) -> None:
    """429 says when to come back, and 500 belongs to the request: neither is tried on all replicas."""
    with ExitStack() as running:
        busy = [running.enter_context(StandIn(place, 429)) for place in balancer.places]
        assert httpx.post(f"http://127.0.0.1:{balancer.port}/rerank", content=b"{}").status_code == 429
        assert sum(len(each.bodies) for each in busy) == 1
        for each in busy:
            each.shutdown()
