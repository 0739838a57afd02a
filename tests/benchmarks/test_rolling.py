"""The balancer of examples/balancer, with stand-ins for the replicas; what counts as a right answer."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from benchmarks.rolling import Balancer, Known, Seen, report, wrong
from tests.programs import need
from tests.service.faults import wait_for

KNOWN = Known(b"{}", {0: 0.25, 1: 0.75})


class StandIn(http.server.ThreadingHTTPServer):
    """Answers POST with a status, or hangs up once it has read the body."""

    def __init__(self, port: int, status: int | None) -> None:
        self.bodies: list[int] = []
        super().__init__(("127.0.0.1", port), handler(self, status))
        threading.Thread(target=self.serve_forever, daemon=True).start()


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
    need("nginx", "nginx-light")
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


def answer(status: int = 200, **scores: float) -> httpx.Response:
    results = [{"index": int(name[1:]), "relevance_score": score} for name, score in scores.items()]
    return httpx.Response(status, json={"results": results})


def test_an_answer_is_held_to_the_idle_services() -> None:
    assert wrong(answer(_1=0.75, _0=0.25), KNOWN) is None
    assert wrong(answer(_1=0.75, _0=0.2503), KNOWN) == "scores off by 0.0003"
    assert wrong(answer(_1=0.75), KNOWN) == "1 results of 2"
    assert str(wrong(answer(502), KNOWN)).startswith("502")


def test_a_run_without_repeated_requests_shows_nothing() -> None:
    said: list[str] = []
    seen = Seen()
    seen.right(0.1)
    report(seen, 3, [0, 0], said.append)
    assert seen.wrong == []
    assert said[-1] == "no client saw an error"
    report(seen, 0, [0, 1], said.append)
    assert len(seen.wrong) == 2
    assert said[-1].startswith("WRONG (1)")
