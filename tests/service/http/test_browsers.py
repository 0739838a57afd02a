"""A service without keys, and what web pages of others make a browser send to it: real requests, and a real browser."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.http.sockets import are_loopback, bind
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.browser import chromium
from tests.service.faults import wait_for
from tests.service.keyed import bearing, keyed
from tests.support.serving import Service

GOOD: dict[str, Any] = {"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}
BODY = json.dumps(GOOD).encode()
ACTS = (("POST", "/rerank"), ("POST", "/v2/rerank/"), ("POST", "/admin/reload"), ("PUT", "/documents"), ("DELETE", "/documents/a"))
EVIL = "https://evil.example"
FOREIGN = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "7f000001")
OWN = ("localhost", "LOCALHOST:8000", "localhost.:80", "a.localhost", "127.0.0.1:1", "10.0.0.7", "[::1]:80")


class Asked:
    """Sends requests to a service, and reads the counter of those that it denied."""

    def __init__(self, url: str) -> None:
        self.url, self.place = url, url.removeprefix("http://")

    def __call__(self, method: str, path: str, body: bytes = BODY, **headers: str) -> tuple[int, str]:
        answer = httpx.request(method, self.url + path, content=body, headers=dashed(headers), timeout=60)
        return answer.status_code, answer.text

    def denied(self, why: str) -> float:
        line = f'keyblock_denied_total{{why="{why}"}} '
        return next(float(one.removeprefix(line)) for one in self("GET", "/metrics")[1].splitlines() if one.startswith(line))


def dashed(headers: dict[str, str]) -> dict[str, str]:
    """Headers whose names are Python's."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture(scope="module")
def ask(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    work = tmp_path_factory.mktemp("browsers")
    options = {"bundle": bundle_path, "store": work / "store", "cors_origins": "https://app.example, https://b.example"}
    with Service(1, work / "log", provider="cpu", **options) as service:
        yield Asked(service.url)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": EVIL, "Content_Type": "text/plain"},
        {"Origin": EVIL, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Origin": "http://127.0.0.1:1", "Sec_Fetch_Site": "same-site"},  # another port is another origin
        {"Origin": "http://["},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "https://app.example.evil.example"},
    ],
    ids=str,
)
def test_a_page_of_another_origin_may_not_act(ask: Asked, headers: dict[str, str]) -> None:
    before = ask.denied("origin")
    problem = "may not send this to a service without API keys: name the origin in KEYBLOCK_CORS_ORIGINS"
    for method, path in ACTS:
        status, text = ask(method, path, **headers)
        assert (status, problem in json.loads(text)["message"]) == (403, True), path
    assert ask.denied("origin") == before + len(ACTS)


@pytest.mark.parametrize(
    "own", [{}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}, {"Origin": "https://b.example"}]
)
def test_clients_its_own_pages_and_named_origins_may(ask: Asked, own: dict[str, str]) -> None:
    assert ask("PUT", "/documents", b'{"id": "a", "text": "a river"}', **own)[0] == 200
    assert ask("POST", "/rerank", Content_Type="text/plain", **own)[0] == 200
    assert ask("POST", "/admin/reload", b"", **own)[0] == 200
    assert ask("DELETE", "/documents/a", b"", **own)[0] == 200


def test_an_origin_is_its_own_by_the_host_that_the_request_names(ask: Asked) -> None:
    """Browsers send no Sec-Fetch-Site to a plain http:// name; the scheme may be that of a proxy."""
    for origin in (f"http://{ask.place}", f"https://{ask.place}"):
        assert ask("POST", "/rerank", Origin=origin)[0] == 200
    assert ask("POST", "/rerank", Origin="http://search.localhost", Host="search.localhost")[0] == 200
    assert ask("POST", "/rerank", Origin="http://127.0.0.1")[0] == 403


def test_reading_is_left_to_cors(ask: Asked) -> None:
    for path in ("/", "/info", "/metrics", "/health/ready"):
        assert ask("GET", path, b"", Origin=EVIL, Sec_Fetch_Site="cross-site")[0] == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused_on_a_loopback_address(ask: Asked, host: str) -> None:
    """To a browser such a page is of the service's own origin (DNS rebinding)."""
    before = ask.denied("host")
    every = [*ACTS, ("GET", "/documents/a"), ("GET", "/"), ("GET", "/health/live")]
    for method, path in every:
        status, text = ask(method, path, Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")
        assert status == 403
        assert f"the Host '{host}' is no name of this machine" in json.loads(text)["message"]
    assert ask.denied("host") == before + len(every)


@pytest.mark.parametrize("host", OWN)
def test_names_of_this_machine_and_addresses_are_taken(ask: Asked, host: str) -> None:
    assert ask("POST", "/rerank", Host=host)[0] == 200


def test_the_refused_body_is_read_and_the_connection_goes_on(ask: Asked) -> None:
    connection = HTTPConnection(ask.place, timeout=60)
    for headers, status in (({"Origin": EVIL}, 403), ({}, 200)):
        connection.request("POST", "/rerank", BODY.ljust(1 << 20), headers)
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (status, True)
        assert answer.headers["x-request-id"]
    connection.close()


def client_of(settings: Settings, ranker: Ranker, *, loopback: bool) -> TestClient:
    return TestClient(create_app(settings, ranker, loopback=loopback), base_url="http://localhost")


def status(client: TestClient, **headers: str) -> int:
    return client.post("/rerank", content=BODY, headers=dashed(headers)).status_code


def test_settings_allow_both(settings: Settings, ranker: Ranker) -> None:
    allowing = settings.model_copy(update={"cross_site_writes": True, "allowed_hosts": "search.internal, PC.example"})
    client = client_of(allowing, ranker, loopback=True)
    assert status(client, Origin=EVIL, Sec_Fetch_Site="cross-site") == 200
    assert status(client, Host="search.internal:8000") == status(client, Host="pc.example") == 200
    assert status(client, Host="evil.example") == 403
    for every in ({"cors_origins": "*"}, {"allowed_hosts": "*"}):
        client = client_of(settings.model_copy(update=every), ranker, loopback=True)
        assert status(client, Origin=EVIL) == (200 if "cors_origins" in every else 403)
        assert status(client, Host="evil.example") == (200 if "allowed_hosts" in every else 403)


def test_a_service_for_all_addresses_takes_every_host_and_no_foreign_page(settings: Settings, ranker: Ranker) -> None:
    client = client_of(settings, ranker, loopback=False)
    assert status(client, Host="keyblock.shop.svc") == 200
    assert status(client, Host="keyblock.shop.svc", Origin=EVIL) == 403


def test_keys_protect_by_themselves(settings: Settings, ranker: Ranker) -> None:
    """A page that has a key may use it from anywhere; without one the answer is 401, whatever the origin."""
    client = client_of(keyed(settings), ranker, loopback=True)
    assert status(client, Origin=EVIL) == 401
    assert status(client, Origin=EVIL, Host="evil.example", **bearing("alice")) == 200


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("localhost", True), ("127.1.2.3", True), ("0.0.0.0", False)])
def test_loopback_is_what_the_sockets_say(host: str, loopback: bool) -> None:
    sockets = bind(host, 0)
    assert are_loopback(sockets) is loopback
    for one in sockets:
        one.close()


ATTACK = """<!doctype html><body><script>
const text = { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body: BODY };
const plain = { method: "POST", body: BODY }, empty = { method: "POST", mode: "no-cors" };
const attempts = [["/rerank", text], ["/rerank", plain], ["/admin/reload", empty]];
Promise.allSettled(attempts.map(([path, options]) => fetch("TARGET" + path, options))).then(() => {
  const form = document.createElement("form"), frame = document.createElement("iframe");
  Object.assign(frame, { name: "frame", onload: () => document.title = "done" });
  Object.assign(form, { method: "POST", action: "TARGET/admin/reload", enctype: "text/plain", target: "frame" });
  document.body.append(frame, form);
  form.submit();
});
</script></body>"""


@contextmanager
def attacker(target: str) -> Iterator[str]:
    """The address of a page that acts on the target, at another port: another origin."""
    page = ATTACK.replace("TARGET", target).replace("BODY", json.dumps(BODY.decode())).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_chromium_on_a_page_of_another_origin_cannot_act(ask: Asked) -> None:
    """Its requests without a preflight reach the service: fetch() as no-cors and as text, and a form."""
    before = ask.denied("origin")
    with attacker(f"http://{ask.place}") as page, chromium() as driver:
        driver.get(page)
        wait_for(lambda: driver.title == "done", pause=0.05)
    assert ask.denied("origin") == before + 4


def test_chromium_at_a_name_that_points_here_cannot_act(ask: Asked) -> None:
    """DNS rebinding: the browser takes the page's requests for those of one origin."""
    port = ask.place.rpartition(":")[2]
    before = ask.denied("host")
    with chromium("--host-resolver-rules=MAP rebound.example 127.0.0.1") as driver:
        driver.get(f"http://rebound.example:{port}/")
        assert "is no name of this machine" in driver.page_source
    assert ask.denied("host") > before  # the page, and its icon
